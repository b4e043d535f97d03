"""Where a node stands in topological order: mostly where it is stored."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from dlv.metadata.select.scope import Statement


def rank(statement: Statement, ground: str, net: str, pos: str) -> str:
    """SQL of a node's place in topological order."""
    key = "rank", ground
    if key not in statement.cache:
        statement.cache[key] = statement.function("dql_rank", _ranks(statement, ground))
    return f"{statement.cache[key]}({net}, {pos})"


def _ranks(statement: Statement, ground: str) -> Callable[[int, int], int]:
    """Nodes are mostly stored in this order; where they are not, their edges tell."""
    known: dict[int, list[int] | None] = {}

    def place(net: int, pos: int) -> int:
        if net not in known:
            edges = statement.db.rows(
                f"SELECT src, dst FROM {ground}edge WHERE net_id = ?1 AND direct"
                f" UNION ALL SELECT src, dst FROM {ground}raw_edge WHERE net_id = ?1",
                (net,),
            )
            known[net] = None
            if any(src >= dst for src, dst in edges):
                count = statement.db.value(
                    f"SELECT max(pos) + 1 FROM {ground}node WHERE net_id = ?", (net,)
                )
                known[net] = topological(count, edges)
        ranks = known[net]
        return pos if ranks is None else ranks[pos]

    return place


def topological(count: int, edges: Sequence[Sequence[int]]) -> list[int]:
    """The place of each node: producers first, otherwise as stored; cycles at the end."""
    waits = [0] * count
    users: list[list[int]] = [[] for _ in range(count)]
    for src, dst in {(src, dst) for src, dst in edges}:
        users[src].append(dst)
        waits[dst] += 1
    ready = [pos for pos in range(count) if not waits[pos]]
    order = []
    while ready:
        pos = heapq.heappop(ready)
        order.append(pos)
        for user in users[pos]:
            waits[user] -= 1
            if not waits[user]:
                heapq.heappush(ready, user)
    order += [pos for pos in range(count) if waits[pos]]
    places = [0] * count
    for place, pos in enumerate(order):
        places[pos] = place
    return places
