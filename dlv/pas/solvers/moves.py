"""Loops of the search for the best plan: swaps under prices, rotations, ejection chains."""

from __future__ import annotations

from typing import Any

from dlv.pas.solvers.tree import Flat, Tree, add_load, following, swap, under
from dlv.pas.storage_graph import UNLIMITED

NOTHING = 1e300


def settle(flat: Flat, tree: Tree, load: Any, moves: Any) -> int:
    """Make those of the swaps that still lower storage plus priced recreation. How many did."""
    heads, tails, storage, recreation = flat.heads, flat.tails, flat.storage, flat.recreation
    edge, distance, parent = tree.edge, tree.distance, tree.parent
    made = 0
    for at in range(len(moves)):
        e = moves[at]
        v, u = heads[e], tails[e]
        shift = distance[u] + recreation[e] - distance[v]
        if storage[e] - storage[edge[v]] + load[v] * shift >= -0.001:
            continue
        if under(tree, u, v):
            continue
        add_load(tree, load, parent[v], -load[v])
        swap(flat, tree, e)
        add_load(tree, load, u, load[v])
        made += 1
    return made


def rotate(flat: Flat, tree: Tree, load: Any, outs: Any, ins: Any) -> int:
    """As `settle`, for pairs: the tail y of outs[i] = (y, u) lies below u; it goes out by ins[i],
    and u goes below it."""
    heads, tails, storage, recreation = flat.heads, flat.tails, flat.storage, flat.recreation
    edge, distance, parent = tree.edge, tree.distance, tree.parent
    made = 0
    for at in range(len(outs)):
        f, e = outs[at], ins[at]
        y, u, s = tails[f], heads[f], tails[e]
        there = distance[s] + recreation[e]
        rest = load[u] - load[y]
        change = storage[e] - storage[edge[y]] + load[y] * (there - distance[y])
        change += storage[f] - storage[edge[u]]
        change += rest * (there + recreation[f] - distance[u])
        if change >= -0.001:
            continue
        if under(tree, s, u) or not under(tree, y, u):
            continue
        for way in (e, f):
            v = heads[way]
            add_load(tree, load, parent[v], -load[v])
            swap(flat, tree, way)
            add_load(tree, load, parent[v], load[v])
        made += 1
    return made


def explore(
    flat: Flat, tree: Tree, moves: Any, most: int, log: Any, groups: Any, region: Any, looked: Any
) -> int:
    """Ejection chains: take a swap; where that breaks budgets pay with swaps that cost less than
    was saved; then take what it made possible around it. Keep all if that saves storage, else
    nothing. `most`: swaps in a chain; `log`, `groups`, `region`: room; `looked`: zeros for all
    vertices. Bytes saved."""
    heads, tails, storage, recreation = flat.heads, flat.tails, flat.storage, flat.recreation
    edge, distance = tree.edge, tree.distance
    saved, turn = 0, 0
    for at in range(len(moves)):
        e = moves[at]
        v, u = heads[e], tails[e]
        old = edge[v]
        if e == old:
            continue
        net = storage[e] - storage[old]
        if net >= 0 and distance[u] + recreation[e] >= distance[v]:
            continue
        if under(tree, u, v):
            continue
        log[0] = old
        done = 1
        count = 0
        if swap(flat, tree, e) > 0:
            count = overrun(flat, tree, v, groups, 0)
        if count == len(groups):  # more than could be noted, far more than could be paid for
            swap(flat, tree, old)
            continue
        bad = worst(flat, tree, groups, count)
        while bad >= 0 and done < most:
            f = remedy(flat, tree, bad, -net)
            if f < 0:
                break
            x = heads[f]
            net += storage[f] - storage[edge[x]]
            log[done] = edge[x]
            done += 1
            swap(flat, tree, f)
            bad = worst(flat, tree, groups, count)
        if bad < 0:
            more, done, turn = harvest(flat, tree, log, done, region, looked, turn, -1, -1)
            net += more
            if net < 0:
                saved -= net
                continue
        while done > 0:
            done -= 1
            swap(flat, tree, log[done])
    return saved


def harvest(
    flat: Flat, tree: Tree, log: Any, done: int, region: Any, looked: Any, turn: int, v: int, u: int
) -> tuple[int, int, int]:
    """Swaps that save and break no budget, around what the swaps in `log` did; v and u stay.

    `looked`: the turn in which a vertex was last looked at; a turn ends with a swap, and until
    then the vertex has nothing to give. What storage changed, swaps done, the turn.
    """
    tails, storage, recreation = flat.tails, flat.storage, flat.recreation
    in_start, cheapest, least = flat.in_start, flat.in_cheapest, flat.least
    group_start, group, budget = flat.group_start, flat.group, flat.budget
    edge, distance, total = tree.edge, tree.distance, tree.total
    net = 0
    size = around(flat, tree, log, done, region)
    turn += 1
    for x in region[:size]:
        if looked[x] == turn:
            continue
        looked[x] = turn
        held = storage[edge[x]]
        if least[x] >= held or x in (v, u):
            continue
        at, end, room = in_start[x], in_start[x + 1], UNLIMITED
        position, stop = group_start[x], group_start[x + 1]
        while position < stop:
            g = group[position]
            position += 1
            if budget[g] - total[g] < room:
                room = budget[g] - total[g]
        latest = distance[x] + (room if room > 0 else 0)
        while at < end:
            f = cheapest[at]
            at += 1
            if storage[f] >= held:
                break
            if distance[tails[f]] + recreation[f] > latest:
                continue
            if under(tree, tails[f], x) or not fits(flat, tree, f):
                continue
            if done < len(log):
                turn += 1
                net += storage[f] - held
                log[done] = edge[x]
                done += 1
                swap(flat, tree, f)
            break
    return net, done, turn


def around(flat: Flat, tree: Tree, log: Any, done: int, region: Any) -> int:
    """Vertices that may gain by what the swaps in `log` did: what could hang below their heads,
    and who shares a budget with them. How many; some may come twice."""
    out_start, out_head, heads = flat.out_start, flat.out_head, flat.heads
    group_start, group, member = flat.group_start, flat.group, flat.member
    member_start, first = flat.member_start, tree.first
    count, most = 0, len(region)
    for step in range(done):
        top = heads[log[step]]
        if count < most:
            region[count] = top
            count += 1
        x = top
        while x >= 0 and count < most:
            low, high = out_start[x], out_start[x + 1]
            high = min(high, low + most - count)
            region[count : count + high - low] = out_head[low:high]
            count += high - low
            at, end = group_start[x], group_start[x + 1]
            while at < end:
                g = group[at]
                at += 1
                low, high = member_start[g], member_start[g + 1]
                if high - low > 1:  # one alone is below another's head anyway
                    high = min(high, low + most - count)
                    region[count : count + high - low] = member[low:high]
                    count += high - low
            x = following(tree, x, top) if first[top] >= 0 else -1
    return count


def fits(flat: Flat, tree: Tree, e: int) -> bool:
    """Whether the swap to e breaks no budget."""
    group_start, group, member_start = flat.group_start, flat.group, flat.member_start
    total, budget, first = tree.total, flat.budget, tree.first
    top = flat.heads[e]
    shift = tree.distance[flat.tails[e]] + flat.recreation[e] - tree.distance[top]
    if shift <= 0:
        return True
    x = top
    met = 0  # groups of several
    while x >= 0:
        at, end = group_start[x], group_start[x + 1]
        while at < end:
            g = group[at]
            at += 1
            if total[g] + shift > budget[g]:
                return False
            if member_start[g + 1] - member_start[g] > 1:
                met += 1
        x = following(tree, x, top) if first[top] >= 0 else -1
    if met < 2:
        return True
    # Members of one group below the same vertex all move: their sum counts.
    old = tree.edge[top]
    over = swap(flat, tree, e)
    swap(flat, tree, old)
    return over == 0


def overrun(flat: Flat, tree: Tree, v: int, groups: Any, count: int) -> int:
    """Note the groups over budget of all below v (some may come twice), after those noted
    already. How many there are."""
    group_start, group, budget = flat.group_start, flat.group, flat.budget
    total, first, most = tree.total, tree.first, len(groups)
    x = v
    while x >= 0 and count < most:
        at, end = group_start[x], group_start[x + 1]
        while at < end:
            g = group[at]
            at += 1
            if total[g] > budget[g] and count < most:
                groups[count] = g
                count += 1
        x = following(tree, x, v) if first[v] >= 0 else -1
    return count


def worst(flat: Flat, tree: Tree, groups: Any, count: int) -> int:
    """The group that is furthest over its budget; -1 for none."""
    found, most = -1, 0
    if count == 0:
        return found
    total, budget = tree.total, flat.budget
    for at in range(count):
        g = groups[at]
        if total[g] - budget[g] > most:
            found, most = g, total[g] - budget[g]
    return found


def remedy(flat: Flat, tree: Tree, g: int, limit: int) -> int:
    """The swap that brings a group nearest to its budget per byte, for less than `limit`."""
    tails, storage, recreation = flat.tails, flat.storage, flat.recreation
    in_start, in_edge, member = flat.in_start, flat.in_edge, flat.member
    edge, distance, parent = tree.edge, tree.distance, tree.parent
    need = tree.total[g] - flat.budget[g]
    best, found = 0.0, -1
    for at in range(flat.member_start[g], flat.member_start[g + 1]):
        x = member[at]
        steps = 0
        while x > 0 and steps < 3:
            most, there = storage[edge[x]] + limit, distance[x]
            position, end = in_start[x], in_start[x + 1]
            while position < end:
                f = in_edge[position]
                position += 1
                if storage[f] >= most:
                    continue
                faster = there - distance[tails[f]] - recreation[f]
                if faster <= 0:
                    continue
                more = storage[f] - storage[edge[x]]
                value = NOTHING if more <= 0 else float(min(faster, need)) / more
                if value > best:
                    best, found = value, f
            x = parent[x]
            steps += 1
    return found


def anneal(
    flat: Flat,
    tree: Tree,
    rounds: int,
    heat: int,
    seed: int,
    best: Any,
    log: Any,
    groups: Any,
    region: Any,
    looked: Any,
) -> int:
    """Threshold accepting: random swaps, each paid for and made use of as in `explore`, are kept
    while they cost no more storage than a limit that falls from `heat` to 0. `best`: the edges of
    the smallest tree on the way, to begin with those of `tree`. Bytes saved by it."""
    heads, tails, storage = flat.heads, flat.tails, flat.storage
    in_start, in_edge, edge = flat.in_start, flat.in_edge, tree.edge
    now, least, turn = 0, 0, 0
    count_of = len(edge)
    for step in range(rounds):
        seed = (seed * 1103515245 + 12345) % 2147483648
        v = 1 + seed // 8 % (count_of - 1)
        ways = in_start[v + 1] - in_start[v]
        seed = (seed * 1103515245 + 12345) % 2147483648
        e = in_edge[in_start[v] + seed // 8 % ways]
        old = edge[v]
        if e == old:
            continue
        limit = heat * (rounds - step) // rounds
        net = storage[e] - storage[old]
        done = 0
        u = tails[e]
        if under(tree, u, v):  # first out of there, by whatever way leads out
            ways = in_start[u + 1] - in_start[u]
            seed = (seed * 1103515245 + 12345) % 2147483648
            f = in_edge[in_start[u] + seed // 8 % ways]
            if under(tree, tails[f], v):
                continue
            net += storage[f] - storage[edge[u]]
            log[0] = edge[u]
            done = 1
            swap(flat, tree, f)
        log[done] = old
        done += 1
        count = 0
        swap(flat, tree, e)
        for step_back in range(done):
            count = overrun(flat, tree, heads[log[step_back]], groups, count)
        bad = worst(flat, tree, groups, count)
        ok = count < len(groups)
        while ok and bad >= 0 and done < 8:
            f = remedy(flat, tree, bad, 4 * heat + limit + 1)
            if f < 0:
                break
            x = heads[f]
            net += storage[f] - storage[edge[x]]
            log[done] = edge[x]
            done += 1
            swap(flat, tree, f)
            bad = worst(flat, tree, groups, count)
        if ok and bad < 0:
            more, done, turn = harvest(flat, tree, log, done, region, looked, turn, v, u)
            net += more
            if net <= limit:
                now += net
                if now < least:
                    least = now
                    best[:] = edge
                continue
        while done > 0:
            done -= 1
            swap(flat, tree, log[done])
    return -least
