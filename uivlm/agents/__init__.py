"""Agents behind one protocol: reset, then act on a history."""
