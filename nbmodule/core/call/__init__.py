"""Calls of modules: build, take options, record, compile, and run the user's forward."""
