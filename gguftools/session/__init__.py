"""Model, Session and Stream: the draft and its target at work for a program.

`gguftools.Model` and its companions are mapped here by the package; each lives in the file of its name.
"""
