"""Native PyTorch models: tracked by hooks, their operations read by a function mode of PyTorch."""
