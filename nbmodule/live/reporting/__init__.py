"""Output of a run: the view in a notebook, the line in a terminal, and their messages."""
