"""One set of answers scored the way each peer scores: a file a peer, `score.py` chooses."""
