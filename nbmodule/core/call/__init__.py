"""What a call does: it builds, takes options, records, compiles, and runs the user's forward."""
