"""File formats: weights, networks, data sets, logs and settings, as they lie on a user's disk.

A module or a folder per format. `registry` names the module that reads a format, `detect` tells
formats apart by content, and `checkpoint` holds what a reader returns. Readers of safetensors,
GGUF, HDF5, pickles and protobuf are written here, because files may be hostile and C libraries
crash on flipped bits. Nothing here knows of repositories.
"""
