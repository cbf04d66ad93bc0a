"""What a run tells: a view in a notebook, a line in a terminal, the messages between."""
