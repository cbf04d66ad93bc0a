"""Repeat any step of a run, go back to it, and branch from it."""
