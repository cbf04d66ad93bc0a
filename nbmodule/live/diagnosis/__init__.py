"""Rules that judge a training run: what looks wrong, where, since when, and what to try."""

# They register their rules, before any that a user adds.
from nbmodule.live.diagnosis import curve_rules, data_rules, model_rules  # noqa: F401
