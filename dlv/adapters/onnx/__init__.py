"""ONNX files as networks, and networks as ONNX files.

`files` is the adapter: `model` says what a file holds, `network` walks its graph and asks the
readers in `rules`. `writer` walks a network and asks the writers in `rules`, or `raw` where the
vocabulary has no word.
"""
