"""Operators of ONNX, family by family: how each is read, and how a layer is written as such.

`READERS` go by the kind of an ONNX operator, `WRITERS` by the operation of a layer.
"""
