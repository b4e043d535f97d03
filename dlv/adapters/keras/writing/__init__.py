"""Keras files written from networks; `writer` is the way in."""
