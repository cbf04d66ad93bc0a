"""Saved views joined to the kernel that made them: what they may ask, and what they hold."""
