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
    out_start: Any
    out_edge: Any
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


def plant(flat: Flat, tree: Tree) -> None:
    """Links, distances and totals out of the parent edges alone."""
    count = len(tree.edge)
    for v in range(count):
        tree.first[v] = tree.after[v] = tree.before[v] = -1
    tree.distance[0] = 0
    tree.parent[0] = -1
    for v in range(count - 1, 0, -1):
        u = flat.tails[tree.edge[v]]
        tree.parent[v] = u
        tree.after[v] = tree.first[u]
        if tree.first[u] >= 0:
            tree.before[tree.first[u]] = v
        tree.first[u] = v
    v = following(tree, 0, 0)
    while v >= 0:
        tree.distance[v] = tree.distance[tree.parent[v]] + flat.recreation[tree.edge[v]]
        v = following(tree, v, 0)
    for g in range(len(flat.budget)):
        total = 0
        for at in range(flat.member_start[g], flat.member_start[g + 1]):
            total += tree.distance[flat.member[at]]
        tree.total[g] = total


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


def relink(flat: Flat, tree: Tree, e: int) -> int:
    """Hang the head of e below its tail. Returns the change of distance, not yet applied."""
    v, u = flat.heads[e], flat.tails[e]
    first, after, before = tree.first, tree.after, tree.before
    left, right = before[v], after[v]
    if left >= 0:
        after[left] = right
    else:
        first[tree.parent[v]] = right
    if right >= 0:
        before[right] = left
    below = first[u]
    first[u] = v
    before[v] = -1
    after[v] = below
    if below >= 0:
        before[below] = v
    tree.parent[v] = u
    tree.edge[v] = e
    return tree.distance[u] + flat.recreation[e] - tree.distance[v]  # type: ignore[no-any-return]


def swap(flat: Flat, tree: Tree, e: int) -> int:
    """Give the head of e the in-edge e. Returns how many groups it then finds over budget, of
    those that it made slower, each time that it meets one."""
    shift = relink(flat, tree, e)
    over = 0
    if shift == 0:
        return over
    distance, total, budget = tree.distance, tree.total, flat.budget
    group_start, group, first = flat.group_start, flat.group, tree.first
    top = x = flat.heads[e]
    while x >= 0:
        distance[x] += shift
        for at in range(group_start[x], group_start[x + 1]):
            g = group[at]
            total[g] += shift
            if shift > 0 and total[g] > budget[g]:
                over += 1
        if first[x] >= 0:  # as `following` has it, without a call for most
            x = first[x]
        elif x == top:
            break
        else:
            x = following(tree, x, top)
    return over


def carry(tree: Tree, load: Any, v: int, amount: Any) -> None:
    """Add to the load of v and of all that it hangs from."""
    parent = tree.parent
    while v >= 0:
        load[v] += amount
        v = parent[v]
