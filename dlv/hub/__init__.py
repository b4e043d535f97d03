"""Remotes: sharing versions over a folder, an object store or a web server.

Start at `push` and `pull`. `stores/` are the backends, `history` is the list of published versions,
`locator` lists the chunks of a version, `packing` and `fetching` move them.
"""
