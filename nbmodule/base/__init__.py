"""What two rooms need, once, and without models: words and numbers as text, which framework a value
comes from.
"""
