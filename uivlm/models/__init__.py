"""One file per model; every model reads and writes the same sentences."""
