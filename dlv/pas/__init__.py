"""The parameter archival store: matrices as byte planes, differences and codes in packs.

`layouts` cuts numbers into planes, `deltas` predicts a matrix from another, `coders` makes bytes
smaller, `solvers` choose what is stored against what. `encode` and `read` go from a matrix to
chunks and back, `packs` is the file.
"""
