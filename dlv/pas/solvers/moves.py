"""Loops of the search for the best plan: swaps under prices, rotations, ejection chains."""

from __future__ import annotations

from typing import Any

from dlv.pas.solvers.tree import Flat, Tree, carry, following, swap, under

NOTHING = 1e300


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


def explore(
    flat: Flat, tree: Tree, moves: Any, most: int, log: Any, groups: Any, region: Any, looked: Any
) -> int:
    """Ejection chains: take a swap; where that breaks budgets pay with swaps that cost less than
    was saved; then take what it made possible around it. Keep all if that saves storage, else
    nothing. `most`: swaps in a chain; `log`, `groups`, `region`: room; `looked`: zeros for all
    vertices. Bytes saved."""
    saved = 0
    turn = 0  # a vertex that was looked at in this turn has nothing to give: no swap came between
    for at in range(len(moves)):
        e = moves[at]
        v = flat.heads[e]
        old = tree.edge[v]
        if e == old or under(tree, flat.tails[e], v):
            continue
        net = flat.storage[e] - flat.storage[old]
        faster = tree.distance[v] - tree.distance[flat.tails[e]] - flat.recreation[e]
        if net >= 0 and faster <= 0:
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
            x = flat.heads[f]
            net += flat.storage[f] - flat.storage[tree.edge[x]]
            log[done] = tree.edge[x]
            done += 1
            swap(flat, tree, f)
            bad = worst(flat, tree, groups, count)
        if bad < 0:
            size = around(flat, tree, log, done, region)
            turn += 1
            for place in range(size):
                x = region[place]
                if looked[x] == turn:
                    continue
                looked[x] = turn
                f = saving(flat, tree, x)
                if f >= 0 and done < len(log):
                    turn += 1
                    net += flat.storage[f] - flat.storage[tree.edge[x]]
                    log[done] = tree.edge[x]
                    done += 1
                    swap(flat, tree, f)
            if net < 0:
                saved -= net
                continue
        while done > 0:
            done -= 1
            swap(flat, tree, log[done])
    return saved


def around(flat: Flat, tree: Tree, log: Any, done: int, region: Any) -> int:
    """Vertices that may gain by what the swaps in `log` did: what could hang below their heads,
    and who shares a budget with them. How many; some may come twice."""
    count = 0
    for step in range(done):
        top = flat.heads[log[step]]
        if count < len(region):
            region[count] = top
            count += 1
        x = top
        while x >= 0 and count < len(region):
            for at in range(flat.out_start[x], flat.out_start[x + 1]):
                if count < len(region):
                    region[count] = flat.heads[flat.out_edge[at]]
                    count += 1
            for at in range(flat.group_start[x], flat.group_start[x + 1]):
                g = flat.group[at]
                for member in range(flat.member_start[g], flat.member_start[g + 1]):
                    if count < len(region):
                        region[count] = flat.member[member]
                        count += 1
            x = following(tree, x, top)
    return count


def saving(flat: Flat, tree: Tree, x: int) -> int:
    """The in-edge of x that saves most and breaks no budget; -1 for none."""
    if x == 0:
        return -1
    held = flat.storage[tree.edge[x]]
    for at in range(flat.in_start[x], flat.in_start[x + 1]):
        f = flat.in_cheapest[at]
        if flat.storage[f] >= held:
            break
        if not under(tree, flat.tails[f], x) and fits(flat, tree, f):
            return f  # type: ignore[no-any-return]
    return -1


def fits(flat: Flat, tree: Tree, e: int) -> bool:
    """Whether the swap to e breaks no budget."""
    top = flat.heads[e]
    shift = tree.distance[flat.tails[e]] + flat.recreation[e] - tree.distance[top]
    if shift <= 0:
        return True
    x = top
    met = 0  # groups of several
    while x >= 0:
        for at in range(flat.group_start[x], flat.group_start[x + 1]):
            g = flat.group[at]
            if tree.total[g] + shift > flat.budget[g]:
                return False
            if flat.member_start[g + 1] - flat.member_start[g] > 1:
                met += 1
        if tree.first[x] < 0 and x == top:
            break
        x = following(tree, x, top)
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
    now, least, turn = 0, 0, 0
    count_of = len(tree.edge)
    for step in range(rounds):
        seed = (seed * 1103515245 + 12345) % 2147483648
        v = 1 + seed // 8 % (count_of - 1)
        ways = flat.in_start[v + 1] - flat.in_start[v]
        seed = (seed * 1103515245 + 12345) % 2147483648
        e = flat.in_edge[flat.in_start[v] + seed // 8 % ways]
        old = tree.edge[v]
        if e == old:
            continue
        limit = heat * (rounds - step) // rounds
        net = flat.storage[e] - flat.storage[old]
        done = 0
        u = flat.tails[e]
        if under(tree, u, v):  # first out of there, by whatever way leads out
            ways = flat.in_start[u + 1] - flat.in_start[u]
            seed = (seed * 1103515245 + 12345) % 2147483648
            f = flat.in_edge[flat.in_start[u] + seed // 8 % ways]
            if under(tree, flat.tails[f], v):
                continue
            net += flat.storage[f] - flat.storage[tree.edge[u]]
            log[0] = tree.edge[u]
            done = 1
            swap(flat, tree, f)
        log[done] = old
        done += 1
        count = 0
        swap(flat, tree, e)
        for step_back in range(done):
            x = flat.heads[log[step_back]]
            count = overrun(flat, tree, x, groups, count)
        bad = worst(flat, tree, groups, count)
        ok = count < len(groups)
        while ok and bad >= 0 and done < 8:
            f = remedy(flat, tree, bad, 4 * heat + limit + 1)
            if f < 0:
                break
            x = flat.heads[f]
            net += flat.storage[f] - flat.storage[tree.edge[x]]
            log[done] = tree.edge[x]
            done += 1
            swap(flat, tree, f)
            bad = worst(flat, tree, groups, count)
        if ok and bad < 0:
            size = around(flat, tree, log, done, region)
            turn += 1
            for place in range(size):
                x = region[place]
                if x in (v, u) or looked[x] == turn:
                    continue
                looked[x] = turn
                f = saving(flat, tree, x)
                if f >= 0 and done < len(log):
                    turn += 1
                    net += flat.storage[f] - flat.storage[tree.edge[x]]
                    log[done] = tree.edge[x]
                    done += 1
                    swap(flat, tree, f)
            if net <= limit:
                now += net
                if now < least:
                    least = now
                    for x in range(count_of):
                        best[x] = tree.edge[x]
                continue
        while done > 0:
            done -= 1
            swap(flat, tree, log[done])
    return -least
