"""The active recorders, and the calls and values that they receive."""
