"""Builders of records, one file for each kind of value."""
