"""What can be done on a phone: actions, their text, their gestures."""
