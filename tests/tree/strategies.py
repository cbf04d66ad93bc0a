"""Nested dicts for laws about Containers."""

from hypothesis import strategies as st


def trees(keys, leaves, *, min_size=0):
    """Draw nested dicts; only the whole may have fewer keys than `min_size`."""
    parts = st.recursive(
        leaves,
        lambda parts: st.dictionaries(keys, parts, min_size=min_size, max_size=3),
        max_leaves=8,
    )
    return st.dictionaries(keys, parts, max_size=4)
