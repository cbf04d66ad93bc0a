"""Models of other frameworks: made into modules (`into`), handed back (`out`), and watched as they
stand (`watched`).
"""
