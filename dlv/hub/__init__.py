"""Remotes: sharing versions over a folder, an object store or a web server.

Start at `push` and `pull`. `stores/` are the backends, `history` is the list of published versions,
`locator` lists the chunks of a version, and `packing`, `fetching` and `adopting` move them.
`mirror` and `promised` read versions that stay on a remote, `index` and `searching` find them,
`maintenance` and `deletion` keep a remote in order.
"""
