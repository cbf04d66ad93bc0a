"""Layers, one family in a file; the functions behind them; initializers; losses."""
