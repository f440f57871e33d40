"""Recorded episodes become prepared data: Parquet shards of sentences, meta.json and a report."""
