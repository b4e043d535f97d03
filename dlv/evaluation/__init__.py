"""Networks run on data: in full, or from the first planes of their weights.

`evaluate` is the verb; `plain` reads everything, `progressive` as little as it can, `engines`
compute. What a sum of bounds is, and why it is sound, is told in `network/bounds`.
"""
