"""Data sets for training and testing: arrays, CSV, images, or code of the user's own.

Start at `sets`, which opens any of them.
"""
