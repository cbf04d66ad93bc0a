"""Boxes and the frame: arrays with an identity, and what they are while a function runs."""
