"""A local web page to watch, supervise and record runs on a phone."""
