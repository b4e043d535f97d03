"""Remotes: what repositories share over a folder, an object store or a web server.

`stores` moves bytes, `history` reads who published what, `locator` says where the chunks of a
version are, `push` and `pull` do the work.
"""
