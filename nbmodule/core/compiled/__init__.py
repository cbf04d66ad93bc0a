"""Compiled functions: what they capture, when they are traced again, and how they are called."""
