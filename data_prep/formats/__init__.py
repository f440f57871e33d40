"""The source formats, one module each, with `find(source)` and `read(part)`; see `data_prep.source`."""
