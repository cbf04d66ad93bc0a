"""Rules that judge a training run: what looks wrong, where, since when, and what to try."""
