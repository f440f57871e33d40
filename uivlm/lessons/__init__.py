"""Random screens become lessons for the pre-training of the tiny base."""
