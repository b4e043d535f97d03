"""ONNX files read into networks; `files` is the adapter, `builder` walks the graph.

`ops*` translate the operators, `writing` makes ONNX files of networks.
"""
