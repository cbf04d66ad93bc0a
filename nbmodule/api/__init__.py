"""`nb.Module` with its methods, and functions that join several packages: files, graphs, health."""
