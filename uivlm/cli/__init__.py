"""The `uivlm` command, and the only place that composes rooms."""
