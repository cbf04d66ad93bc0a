"""TODO head."""
