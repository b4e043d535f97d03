"""Graphs of layers: what they are, how they are checked, drawn, edited, compared and run.

`graph` is the network, `vocabulary` the operations, `ops` what each operation does, `forward`
runs a network by numpy. No files and no versions here.
"""
