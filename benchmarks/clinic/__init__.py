"""Planted training faults and healthy runs, to measure how well the rules of diagnosis judge.

`python -m benchmarks.clinic` (or `make clinic`) runs them all and writes the table of
docs/views/diagnosis.md. Half of the cases, chosen by a hash of their name, were kept aside while
thresholds were set.
"""
