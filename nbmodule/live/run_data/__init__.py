"""The state of a run: history, controls, progress and messages, without view and loop."""
