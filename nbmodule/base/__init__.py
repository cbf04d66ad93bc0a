"""Helpers that several packages share and that know no models."""
