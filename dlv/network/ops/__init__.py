"""What each operation does: shapes, cost, forward pass and bound, a module per kind of layer.

`registry` finds the layer of a node.
"""
