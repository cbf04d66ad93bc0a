"""JAX's transforms for code that uses stateful modules; each one only says how the effects of its
function are lifted.
"""
