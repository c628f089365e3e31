"""The fault harness: kills a learning process and replays power cuts, and counts what was lost."""
