"""Measurements of a model during training, their schedule and their cost."""
