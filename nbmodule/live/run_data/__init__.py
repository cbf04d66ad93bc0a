"""What a run knows: its history, its controls, its progress, its messages; no view and no loop."""
