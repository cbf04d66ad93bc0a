"""A reader's clicks reach a busy loop, and act between two steps."""
