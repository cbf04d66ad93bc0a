"""The shape of a model: the one walk, and what is read from it: names, variables, state, structure,
copies.
"""
