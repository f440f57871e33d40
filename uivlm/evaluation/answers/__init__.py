"""The answer formats of other tools: one file each, chosen by `answer_formats.py`."""
