"""A checkpoint folder and a history in, an action out."""
