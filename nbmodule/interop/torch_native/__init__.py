"""Models of PyTorch as they stand: hooks for what runs, a mode of PyTorch's own for the operations;
nothing is converted, nothing stays behind.
"""
