"""Processes that train: on this machine (`pool`) or on Ray (`ray_pool`), a slice at a time."""
