"""The running training loop: control, history, the live view."""
