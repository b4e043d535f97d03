"""How each family of layers is read and written: the two directions side by side, in one file.

`windows` has convolutions and pools, `dense` also embeddings and norms, `sequences` recurrent
layers and attention, `raw` what the vocabulary has no word for. `table` names them all.
"""
