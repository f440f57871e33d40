"""Prepared data and a recipe in, a checkpoint folder out."""
