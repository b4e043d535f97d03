"""Callbacks that record a training run: torch, Lightning, transformers, Keras.

All of them go through `recorder`, which uses the Python API alone.
"""
