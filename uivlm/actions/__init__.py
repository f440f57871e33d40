"""What can be done on a phone: actions, their words, their gestures."""
