"""Loops of the paper's algorithms: PAS-MT's swaps, PAS-PT's growing tree, LAST; and chains cut."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

from dlv.pas.solvers.tree import Flat, Tree, add_load, following, swap, under

FREE = 1e18  # worth of a swap that costs no storage, above all that cost some
NOTHING = 1e300


def worth(faster: int, load: int, more: int) -> float:
    """A swap's place in the queue, the least first: microseconds won per byte paid."""
    if more <= 0:
        return -FREE - float(faster) * load
    return -float(faster) * load / more


def offer(flat: Flat, tree: Tree, load: Any, keys: Any, heap: Any, e: int) -> None:
    """Queue the swap to e, if it wins anything and is not queued as well already."""
    v = flat.heads[e]
    if load[v] <= 0:
        return
    faster = tree.distance[v] - tree.distance[flat.tails[e]] - flat.recreation[e]
    if faster <= 0:
        return
    key = worth(faster, load[v], flat.storage[e] - flat.storage[tree.edge[v]])
    if key < keys[e]:
        keys[e] = key
        heappush(heap, (key, e))


def unmet(flat: Flat, tree: Tree, load: Any, open_: Any) -> int:
    """Mark groups over budget; `load`: how many of their members lie below each vertex."""
    for v in range(len(load)):
        load[v] = 0
    count = 0
    for g in range(len(flat.budget)):
        open_[g] = 1 if tree.total[g] > flat.budget[g] else 0
        if open_[g]:
            count += 1
            for at in range(flat.member_start[g], flat.member_start[g + 1]):
                add_load(tree, load, flat.member[at], 1)
    return count


def close(flat: Flat, tree: Tree, load: Any, open_: Any, v: int) -> int:
    """After v moved: how many groups of its subtree are now within budget, their load taken off."""
    count = 0
    x = v
    while x >= 0:
        for at in range(flat.group_start[x], flat.group_start[x + 1]):
            g = flat.group[at]
            if open_[g] and tree.total[g] <= flat.budget[g]:
                open_[g] = 0
                count += 1
                for member in range(flat.member_start[g], flat.member_start[g + 1]):
                    add_load(tree, load, flat.member[member], -1)
        x = following(tree, x, v)
    return count


def satisfy(
    flat: Flat, tree: Tree, load: Any, open_: Any, left: int, keys: Any, first: Any, worths: Any
) -> int:
    """PAS-MT's loop: the swap worth most, until all groups keep their budgets or none helps.

    `unmet` said `load`, `open_` and `left`. `keys`: NOTHING for every edge, but for those `first`
    what they are worth; these come sorted by that, with `worths`.

    Entries in the heap may be out of date: a swap is judged again when it comes up, and whatever
    may have become worth more by a swap is offered again. Swaps only make things faster, so the
    tail of a swap's edge is never in the subtree that moves.
    """
    heap = [(0.0, 0)]
    heap.pop()
    for at in range(len(first)):
        heap.append((worths[at], first[at]))  # what is sorted is a heap
    while left > 0 and len(heap) > 0:
        key, e = heappop(heap)
        if key != keys[e]:
            continue
        keys[e] = NOTHING
        v = flat.heads[e]
        faster = tree.distance[v] - tree.distance[flat.tails[e]] - flat.recreation[e]
        if faster <= 0 or load[v] <= 0:
            continue
        now = worth(faster, load[v], flat.storage[e] - flat.storage[tree.edge[v]])
        if now > key:
            keys[e] = now
            heappush(heap, (now, e))
            continue
        add_load(tree, load, tree.parent[v], -load[v])
        swap(flat, tree, e)
        add_load(tree, load, tree.parent[v], load[v])
        left -= close(flat, tree, load, open_, v)
        x = v
        while x >= 0:
            for at in range(flat.out_start[x], flat.out_start[x + 1]):
                offer(flat, tree, load, keys, heap, flat.out_edge[at])
            x = following(tree, x, v)
        x = v
        while x > 0 and load[x] > 0:
            for at in range(flat.in_start[x], flat.in_start[x + 1]):
                offer(flat, tree, load, keys, heap, flat.in_edge[at])
            x = tree.parent[x]
    return left


def hurry(flat: Flat, tree: Tree, fastest: Any, path: Any) -> None:
    """Put the members of groups over budget on their shortest paths, root first."""
    for g in range(len(flat.budget)):
        if tree.total[g] <= flat.budget[g]:
            continue
        for at in range(flat.member_start[g], flat.member_start[g + 1]):
            length, x = 0, flat.member[at]
            while x > 0:
                path[length] = x
                length += 1
                x = flat.tails[fastest[x]]
            for step in range(length - 1, -1, -1):
                if tree.edge[path[step]] != fastest[path[step]]:
                    swap(flat, tree, fastest[path[step]])


def last(flat: Flat, tree: Tree, fastest: Any, limit: Any, relaxed: Any, path: Any) -> None:
    """LAST: relax along the tree; `relaxed` (all large) and the tree's edges are what results."""
    relaxed[0] = 0
    walked = [0]
    walked.pop()
    v = following(tree, 0, 0)
    while v >= 0:
        walked.append(v)
        v = following(tree, v, 0)
    for v in walked:
        e = tree.edge[v]
        there = relaxed[flat.tails[e]] + flat.recreation[e]
        if there < relaxed[v]:
            relaxed[v] = there
            path[v] = e
        if relaxed[v] <= limit[v]:
            continue
        # Up to where the shortest path is already taken, then down again.
        steps = [0]
        steps.pop()
        x = v
        while x > 0:
            steps.append(x)
            x = flat.tails[fastest[x]]
        for at in range(len(steps) - 1, -1, -1):
            e = fastest[steps[at]]
            there = relaxed[flat.tails[e]] + flat.recreation[e]
            if there < relaxed[steps[at]]:
                relaxed[steps[at]] = there
                path[steps[at]] = e
    for v in walked:
        tree.edge[v] = path[v]


def grow(flat: Flat, tree: Tree, inside: Any) -> None:
    """PAS-PT: `tree` comes with every vertex at its fastest, and hangs them as they are added.

    Only what is `inside` is a tree to speak of; groups' totals are the estimates of the paper.
    """
    edge, parent, distance, total = tree.edge, tree.parent, tree.distance, tree.total
    inside[0] = 1
    heap = [(0, 0)]
    heap.pop()
    for at in range(flat.out_start[0], flat.out_start[1]):
        e = flat.out_edge[at]
        heappush(heap, (flat.storage[e], e))
    for v in range(len(inside)):
        tree.first[v] = tree.after[v] = tree.before[v] = -1
    while len(heap) > 0:
        _, e = heappop(heap)
        v, u = flat.heads[e], flat.tails[e]
        if inside[v]:
            continue
        slower = distance[u] + flat.recreation[e] - distance[v]
        fits = True
        for at in range(flat.group_start[v], flat.group_start[v + 1]):
            g = flat.group[at]
            if total[g] + slower > flat.budget[g]:
                fits = False
                break
        if not fits:
            continue
        inside[v] = 1
        edge[v], parent[v] = e, u
        distance[v] += slower
        for at in range(flat.group_start[v], flat.group_start[v + 1]):
            total[flat.group[at]] += slower
        tree.after[v] = tree.first[u]
        if tree.first[u] >= 0:
            tree.before[tree.first[u]] = v
        tree.first[u] = v
        for at in range(flat.out_start[v], flat.out_start[v + 1]):
            f = flat.out_edge[at]
            x = flat.heads[f]
            if not inside[x]:
                heappush(heap, (flat.storage[f], f))
                continue
            smaller = flat.storage[f] < flat.storage[edge[x]]
            no_slower = distance[v] + flat.recreation[f] <= distance[x]
            if smaller and no_slower and not under(tree, v, x):
                swap(flat, tree, f)


def shorten(flat: Flat, tree: Tree, most: int) -> int:
    """Cut chains of more than `most` edges, each at the least storage. -1, or what stayed deep.

    Only swaps that bring a vertex nearer to the root are taken, so none makes another chain long.
    """
    walked = [0]
    walked.pop()
    v = following(tree, 0, 0)
    while v >= 0:
        walked.append(v)
        v = following(tree, v, 0)
    for x in walked:
        depth = steps_up(tree, x, -1)
        while depth > most:
            done = False
            for slower in (True, False):
                e = shortcut(flat, tree, x, most, slower)
                if e < 0:
                    continue
                old = tree.edge[flat.heads[e]]
                if swap(flat, tree, e) > 0:
                    swap(flat, tree, old)
                    continue
                done = True
                break
            if not done:
                return x
            depth = steps_up(tree, x, -1)
    return -1


def steps_up(tree: Tree, v: int, barred: int) -> int:
    """Edges from the root to v; -1 if `barred` is on the way."""
    count = 0
    while v > 0:
        if v == barred:
            return -1
        v = tree.parent[v]
        count += 1
    return count


def shortcut(flat: Flat, tree: Tree, x: int, most: int, slower: bool) -> int:
    """The swap on the chain of x after which x is at most `most` deep that costs least for each
    step that x comes nearer: a cut near the root would soon want the next. -1 for none."""
    found, least = -1, 0.0
    deep = steps_up(tree, x, -1)
    a, below = x, 0
    while a > 0:
        for at in range(flat.in_start[a], flat.in_start[a + 1]):
            e = flat.in_edge[at]
            u = flat.tails[e]
            if not slower and tree.distance[u] + flat.recreation[e] > tree.distance[a]:
                continue
            steps = steps_up(tree, u, a)
            if steps < 0 or steps + 1 + below > most:
                continue
            more = float(flat.storage[e] - flat.storage[tree.edge[a]])
            nearer = deep - (steps + 1 + below)
            cost = more / nearer if more > 0 else more
            if found < 0 or cost < least:
                found, least = e, cost
        a = tree.parent[a]
        below += 1
    return found
