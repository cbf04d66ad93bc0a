"""Arrays as facts: what is known without reading them, their statistics, and pictures small enough
to draw.
"""
