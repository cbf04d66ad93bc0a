"""One comparison in each file: `run(quick)` gives its tables."""
