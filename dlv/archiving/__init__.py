"""Storage plans and bounds: every matrix stored as small as it can be under the user's limits.

`archive` is the verb: `planning` measures the graph, `proposal` asks a solver, `reencode` writes
the packs. `bounding` stores weights so that their first planes tell labels for certain. How
matrices become bytes is told in `pas`.
"""
