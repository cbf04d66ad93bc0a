"""What if: the return of a submodule is changed, and what follows from that is looked at; the model
is changed by hand, and back.
"""
