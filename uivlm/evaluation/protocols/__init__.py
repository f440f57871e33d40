"""The scoring rules of other papers: one file each, chosen by `score.py`."""
