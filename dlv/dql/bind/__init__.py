"""From the tree of a query to one in which every name is decided, or to all that is wrong.

`names` is the way in; `bound` has the statements that come out.
"""
