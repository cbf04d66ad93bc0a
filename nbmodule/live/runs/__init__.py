"""Runs kept on disk: a list, a comparison, a report."""
