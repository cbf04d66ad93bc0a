"""Measurements: what nbmodule costs beside raw JAX and its peers, in one interleaved run."""
