"""Whole views: a graph, an inspection, a growing curve, a figure for a paper."""
