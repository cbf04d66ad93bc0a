"""What is measured of a model while it trains, when, and what it costs."""
