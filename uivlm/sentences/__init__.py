"""Episodes become sentences of words and pictures, and sentences become token ids."""
