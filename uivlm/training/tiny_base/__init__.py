"""The pre-training of the tiny base, on screens drawn at random."""
