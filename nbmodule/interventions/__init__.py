"""Interventions: change the returns of submodules, or a model by hand, and see what follows."""
