"""From a graph to coordinates: folded into forms, ordered in rows, placed from the inside out."""
