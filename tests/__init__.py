"""Tests of uivlm; `helpers` is what they share."""
