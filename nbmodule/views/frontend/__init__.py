"""The front end: the ES modules and styles that draw views in a page, and what joins them into one
text.
"""
