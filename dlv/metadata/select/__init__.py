"""Queries as trees (`relations`) and as SQL (`statement`); `m["conv*"].next` is in `nodes`.

`plan`, `costs` and `drivers` decide which index a query begins with.
"""
