"""MiniWoB++ as an online benchmark."""
