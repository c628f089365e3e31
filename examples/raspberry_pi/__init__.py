"""Two applications for a Raspberry Pi, which run on any computer with recorded data."""
