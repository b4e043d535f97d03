"""Trees on flat sequences: what a swap, another in-edge for one vertex, changes.

Parent edges, distances and sibling links, so that a swap costs no more than the subtree that
moves. As in the other files of loops (compiled.py names them) these are plain functions that
numba can compile, on lists as well as on arrays, with the same result to the last bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Flat(NamedTuple):
    """A graph: edges by vertex, groups by vertex and members by group, each as start, items."""

    tails: Any
    heads: Any
    storage: Any
    recreation: Any
    in_start: Any
    in_edge: Any
    in_cheapest: Any  # the same, of each vertex those of least storage first
    least: Any  # storage of the first of these; of the root what no edge takes
    out_start: Any
    out_edge: Any
    out_head: Any
    group_start: Any
    group: Any
    member_start: Any
    member: Any
    budget: Any


class Tree(NamedTuple):
    edge: Any  # of each vertex, -1 for the root
    parent: Any
    distance: Any
    first: Any  # child, sibling, sibling before: -1 for none
    after: Any
    before: Any
    total: Any  # recreation cost of each group


def following(tree: Tree, v: int, top: int) -> int:
    """The vertex after v in the walk over the subtree of `top`, parents first; -1 at its end."""
    if tree.first[v] >= 0:
        return tree.first[v]  # type: ignore[no-any-return]
    while v != top:
        if tree.after[v] >= 0:
            return tree.after[v]  # type: ignore[no-any-return]
        v = tree.parent[v]
    return -1


def under(tree: Tree, u: int, v: int) -> bool:
    """Whether u lies in the subtree of v."""
    parent = tree.parent
    while u > 0:
        if u == v:
            return True
        u = parent[u]
    return u == v


def swap(flat: Flat, tree: Tree, e: int) -> int:
    """Give the head of e the in-edge e. Returns how many groups it then finds over budget, of
    those that it made slower, each time that it meets one."""
    edge, parent, distance, first, after, before, total = tree
    v, u = flat.heads[e], flat.tails[e]
    shift = distance[u] + flat.recreation[e] - distance[v]
    edge[v] = e
    left, right = before[v], after[v]
    if left >= 0:
        after[left] = right
    else:
        first[parent[v]] = right
    if right >= 0:
        before[right] = left
    below = first[u]
    first[u] = v
    before[v] = -1
    after[v] = below
    if below >= 0:
        before[below] = v
    parent[v] = u
    over = 0
    if shift == 0:
        return over
    budget, group_start, group = flat.budget, flat.group_start, flat.group
    x = v
    while True:
        distance[x] += shift
        at, end = group_start[x], group_start[x + 1]
        while at < end:  # in Python sooner than a range so short
            g = group[at]
            at += 1
            total[g] += shift
            if shift > 0 and total[g] > budget[g]:
                over += 1
        if first[x] >= 0:  # as `following` has it, without a call
            x = first[x]
            continue
        while x != v and after[x] < 0:
            x = parent[x]
        if x == v:
            return over
        x = after[x]


def add_load(tree: Tree, load: Any, v: int, amount: Any) -> None:
    """Add to the load of v and of all that it hangs from."""
    parent = tree.parent
    while v >= 0:
        load[v] += amount
        v = parent[v]
