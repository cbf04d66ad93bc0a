"""Records of calls: tracking, comparison with expected returns, the first non-finite value,
recorders.
"""
