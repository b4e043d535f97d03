"""Attributes that repeat what a shape was, and views: which axes are made of which."""

from __future__ import annotations

from typing import Any

from dlv.network.graph import Node
from dlv.network.sizes import Dim, Shape, ShapeError, dim_of, product, refill


def following(node: Node, old: Shape, new: Shape) -> dict[str, Any]:
    """Attributes that said what the old shape was, as they are for the new one."""
    attrs = node.attrs
    kind = attrs.get("kind") if node.op == "RESHAPE" else None
    if kind in ("view", "reshape") and len(old) == len(new):
        size = _resized(attrs["size"], old, new)
        return {} if size is None else {"size": size}
    if kind == "expand" and len(old) == len(new):
        # -1 and what was widened from 1 stay.
        skip = len(attrs["size"]) - len(old)
        pairs = zip(attrs["size"][skip:], old, new, strict=True)
        kept = tuple(b if size == a and a != 1 else size for size, a, b in pairs)
        return {"size": (*attrs["size"][:skip], *kept)}
    if kind == "split" and len(old) == len(new):
        total, sizes = new[attrs["axis"]], attrs["sizes"]
        if isinstance(total, int) and len(set(sizes)) == 1 and total % len(sizes) == 0:
            return {"sizes": (total // len(sizes),) * len(sizes)}
    if node.op == "CONV" and attrs["groups"] > 1 and len(old) == len(new):
        place = -1 if attrs["channels"] == "last" else 1
        if attrs["groups"] == old[place] and isinstance(new[place], int):
            return {"groups": new[place], "out": attrs["out"] // attrs["groups"] * new[place]}
    if node.op in ("ADD", "MUL") and attrs["shape"] is not None and len(old) == len(new):
        return {"shape": _beside(attrs["shape"], old, new)}
    return {}


def _beside(side: Shape, old: Shape, new: Shape) -> Shape:
    """A stored side of a sum, with the axes that were as long as the input's."""
    skip = len(old) - len(side)
    if skip < 0:
        return side
    return tuple(
        new[place + skip] if dim == old[place + skip] and dim != 1 else dim
        for place, dim in enumerate(side)
    )


def _resized(size: tuple[Dim, ...], old: Shape, new: Shape) -> tuple[Dim, ...] | None:
    """The size of a view after its input grew: merged axes are multiplied out, of split ones
    the last follows (64 = 4 x 16 heads become 4 x 32)."""
    if None in (*size, *old):
        return _scaled(size, old, new)
    try:
        groups = grouping(old, refill(old, size))
    except ShapeError:
        return None
    if groups is None:
        return None
    result = list(size)
    for ours, theirs in groups:
        had, have = (dim_of(product(s[i] for i in ours)) for s in (old, new))
        if had == have or -1 in [size[j] for j in theirs]:
            continue
        if have is None:
            return None
        fixed = [j for j in theirs if isinstance(size[j], int) and size[j] != -1]
        if len(theirs) == 1:
            if fixed:
                result[fixed[0]] = have
        elif not fixed or not isinstance(have, int) or len(ours) > 1:
            return None
        else:
            rest = 1
            for j in theirs[:-1]:
                length = refill(old, size)[j]
                rest = rest * length if isinstance(length, int) else 0
            if rest == 0 or have % rest:
                return None
            result[theirs[-1]] = have // rest
    return tuple(result)


def _scaled(size: tuple[Dim, ...], old: Shape, new: Shape) -> tuple[Dim, ...] | None:
    """Of a view with lengths that are computed when it runs: the last written one follows."""
    before, after = (product("?" if dim is None else dim for dim in shape) for shape in (old, new))
    fixed = [j for j, dim in enumerate(size) if isinstance(dim, int) and dim != -1]
    if before is None or after is None or before.symbols != after.symbols or not fixed:
        return None
    place, length = fixed[-1], size[fixed[-1]]
    if -1 in size or not isinstance(length, int) or before.factor == 0:
        return None
    if length * after.factor % before.factor:
        return None
    return (*size[:place], length * after.factor // before.factor, *size[place + 1 :])


def grouping(old: Shape, new: Shape) -> list[tuple[tuple[int, ...], tuple[int, ...]]] | None:
    """Which axes of a reshaped tensor are made of which: the smallest groups of equal size."""
    found: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        ours, theirs = [], []
        if i < len(old):
            ours.append(i)
            i += 1
        if j < len(new):
            theirs.append(j)
            j += 1
        while True:
            a, b = product(old[k] for k in ours), product(new[k] for k in theirs)
            if a is None or b is None:
                return None
            if a == b:
                break
            # Factors are compared with the symbols alike, so that the smaller side grows.
            less = (len(a.symbols), a.factor) < (len(b.symbols), b.factor)
            if less and i < len(old):
                ours.append(i)
                i += 1
            elif not less and j < len(new):
                theirs.append(j)
                j += 1
            elif i < len(old):
                ours.append(i)
                i += 1
            elif j < len(new):
                theirs.append(j)
                j += 1
            else:
                return None
        found.append((tuple(ours), tuple(theirs)))
    return found
