"""Tensors in and out of packs: from files to matrices, and from matrices to arrays.

`writer` stores each matrix once, `store` reads them, `snapshots` says which files are one
checkpoint, `reading` reads parts and approximations, `bounds` is the record of what they leave
open, `catalogue` keeps networks and series.
"""
