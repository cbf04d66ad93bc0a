"""Models of other frameworks as they stand: watched while they run, and answered by the verbs that
look at a model.
"""
