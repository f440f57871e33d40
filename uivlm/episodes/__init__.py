"""Recorded and running episodes: as data, as sentences, as token ids, as Parquet rows."""
