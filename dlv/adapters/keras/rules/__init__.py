"""How each family of layers is read and written: the two directions side by side, in one file.

`windows` has convolutions and pools, `dense` embeddings, norms, recurrent layers and attention as
well, `arithmetic` merging layers and changes of shape. `table` names them all, and has what the
vocabulary has no word for.
"""
