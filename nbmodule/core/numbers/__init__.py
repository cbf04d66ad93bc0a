"""Random numbers: streams of keys, and draws made on the host."""
