"""What several tests share: fakes, tiny checkpoints, factories. No test imports another."""
