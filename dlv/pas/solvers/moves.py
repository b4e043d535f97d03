"""Loops of the search for the best plan: swaps under prices, rotations, ejection chains."""

from __future__ import annotations

from typing import Any

from dlv.pas.solvers.tree import Flat, Tree, carry, following, swap, under

NOTHING = 1e300


def walk(tree: Tree, order: Any, start: Any, end: Any) -> None:
    """Parents first; the subtree of v is order[start[v]:end[v]]."""
    at, v = 0, 0
    first, after, parent = tree.first, tree.after, tree.parent
    while v >= 0:
        order[at] = v
        start[v] = at
        at += 1
        if first[v] >= 0:
            v = first[v]
            continue
        while v >= 0:
            end[v] = at
            if after[v] >= 0:
                v = after[v]
                break
            v = parent[v]


def weigh(tree: Tree, order: Any, price: Any, load: Any) -> None:
    """`load`: the price of a microsecond on the edge into v, for all below it together."""
    parent = tree.parent
    for v in range(len(order)):
        load[v] = price[v]
    for at in range(len(order) - 1, 0, -1):
        v = order[at]
        load[parent[v]] += load[v]


def settle(flat: Flat, tree: Tree, load: Any, moves: Any) -> int:
    """Make those of the swaps that still lower storage plus priced recreation. How many did."""
    made = 0
    for at in range(len(moves)):
        e = moves[at]
        v, u = flat.heads[e], flat.tails[e]
        shift = tree.distance[u] + flat.recreation[e] - tree.distance[v]
        if flat.storage[e] - flat.storage[tree.edge[v]] + load[v] * shift >= -0.001:
            continue
        if under(tree, u, v):
            continue
        carry(tree, load, tree.parent[v], -load[v])
        swap(flat, tree, e)
        carry(tree, load, u, load[v])
        made += 1
    return made


def rotate(flat: Flat, tree: Tree, load: Any, outs: Any, ins: Any) -> int:
    """As `settle`, for pairs: the tail y of outs[i] = (y, u) lies below u; it goes out by ins[i],
    and u goes below it."""
    made = 0
    for at in range(len(outs)):
        f, e = outs[at], ins[at]
        y, u, s = flat.tails[f], flat.heads[f], flat.tails[e]
        if under(tree, s, u) or not under(tree, y, u):
            continue
        there = tree.distance[s] + flat.recreation[e]
        rest = load[u] - load[y]
        change = flat.storage[e] - flat.storage[tree.edge[y]] + load[y] * (there - tree.distance[y])
        change += flat.storage[f] - flat.storage[tree.edge[u]]
        change += rest * (there + flat.recreation[f] - tree.distance[u])
        if change >= -0.001:
            continue
        for edge in (e, f):
            v = flat.heads[edge]
            carry(tree, load, tree.parent[v], -load[v])
            swap(flat, tree, edge)
            carry(tree, load, tree.parent[v], load[v])
        made += 1
    return made


def tighten(flat: Flat, tree: Tree, moves: Any, most: int, path: Any, groups: Any) -> int:
    """Ejection chains: take a swap that saves storage; where that breaks budgets pay with up to
    `most` swaps that cost less than was saved, or take it all back. Bytes saved."""
    saved = 0
    for at in range(len(moves)):
        e = moves[at]
        v = flat.heads[e]
        old = tree.edge[v]
        left = flat.storage[old] - flat.storage[e]
        if left <= 0 or under(tree, flat.tails[e], v):
            continue
        path[0] = old
        done = 1
        count = overrun(flat, tree, v, groups) if swap(flat, tree, e) > 0 else 0
        bad = worst(flat, tree, groups, count)
        if count == len(groups):  # more than could be noted, far more than could be paid for
            swap(flat, tree, old)
            continue
        while bad >= 0 and done <= most:
            f = remedy(flat, tree, bad, left)
            if f < 0:
                break
            x = flat.heads[f]
            left -= flat.storage[f] - flat.storage[tree.edge[x]]
            path[done] = tree.edge[x]
            done += 1
            swap(flat, tree, f)
            bad = worst(flat, tree, groups, count)
        if bad < 0:
            saved += left
            continue
        while done > 0:
            done -= 1
            swap(flat, tree, path[done])
    return saved


def overrun(flat: Flat, tree: Tree, v: int, groups: Any) -> int:
    """Note the groups over budget of all below v (some may come twice). How many."""
    count = 0
    x = v
    while x >= 0 and count < len(groups):
        for at in range(flat.group_start[x], flat.group_start[x + 1]):
            g = flat.group[at]
            if tree.total[g] > flat.budget[g] and count < len(groups):
                groups[count] = g
                count += 1
        x = following(tree, x, v)
    return count


def worst(flat: Flat, tree: Tree, groups: Any, count: int) -> int:
    """The group that is furthest over its budget; -1 for none."""
    found, most = -1, 0
    for at in range(count):
        g = groups[at]
        if tree.total[g] - flat.budget[g] > most:
            found, most = g, tree.total[g] - flat.budget[g]
    return found


def remedy(flat: Flat, tree: Tree, g: int, limit: int) -> int:
    """The swap that brings a group nearest to its budget per byte, for less than `limit`."""
    need = tree.total[g] - flat.budget[g]
    best, found = 0.0, -1
    for at in range(flat.member_start[g], flat.member_start[g + 1]):
        x = flat.member[at]
        steps = 0
        while x > 0 and steps < 3:
            for position in range(flat.in_start[x], flat.in_start[x + 1]):
                f = flat.in_edge[position]
                more = flat.storage[f] - flat.storage[tree.edge[x]]
                if more >= limit:
                    continue
                faster = tree.distance[x] - tree.distance[flat.tails[f]] - flat.recreation[f]
                if faster <= 0:
                    continue
                value = NOTHING if more <= 0 else float(min(faster, need)) / more
                if value > best:
                    best, found = value, f
            x = tree.parent[x]
            steps += 1
    return found
