"""Any moment of a run again: what is kept of each step, how it is repeated, and what would follow
from it.
"""
