"""How episodes were recorded: one module per format, each with `find(source)` and `read(part)` (see `data_prep.record`)."""
