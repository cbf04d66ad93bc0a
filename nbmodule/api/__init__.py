"""What a user holds: `nb.Module` with its verbs, and the functions that join several rooms.

Each door is a line or two.
"""
