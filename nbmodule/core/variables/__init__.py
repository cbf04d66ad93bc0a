"""Variables, arrays with an identity, and the frames that give their values in a function."""
