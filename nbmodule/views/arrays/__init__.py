"""Arrays reduced to what can be shown: metadata, statistics, pictures."""
