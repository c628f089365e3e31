"""Benchmarks: what the product reaches on real data, one file a question; the last line of each is one JSON object."""
