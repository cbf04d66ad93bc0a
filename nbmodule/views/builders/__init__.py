"""Which record stands for which kind of value, one file for each kind of thing."""
