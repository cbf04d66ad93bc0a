"""The structure of a model: one traversal, and names, variables, state and copies from it."""
