"""Runs an agent on a device, and records, replays and shows the run as a trace. No torch."""
