"""Keras: `.keras` and HDF5 files read into networks; `files` and `h5` are the adapters.

`writer` makes Keras files of networks, `check` compares a network with the model in Keras itself.
"""
