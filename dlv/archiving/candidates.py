"""Which matrices may be stored as a delta against which: told by lineage, never all pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from dlv.metadata.storage import HeldSnapshot, StoredMatrix
from dlv.metadata.versions import Version

LAGS = (1, 2)  # how far apart two snapshots or versions of one line may stand
SIBLINGS = 2  # with how many earlier children of its parent a version is compared


def candidates(
    versions: Sequence[Version],
    snapshots: Sequence[HeldSnapshot],
    stored: Mapping[str, StoredMatrix],
) -> dict[str, list[str]]:
    """Matrix -> bases to look at, the nearest of kin first. Oldest version first, please."""
    found: dict[str, dict[str, None]] = {}
    for one, other in _kin(versions, snapshots):
        for left, right in _matched(one, other, stored):
            found.setdefault(left, {})[right] = None
            found.setdefault(right, {})[left] = None
    return {target: list(bases) for target, bases in found.items()}


def _kin(
    versions: Sequence[Version], snapshots: Sequence[HeldSnapshot]
) -> Iterator[tuple[HeldSnapshot, HeldSnapshot]]:
    """Pairs of snapshots that are likely to be close, each pair once."""
    of: dict[int, list[HeldSnapshot]] = {}
    for snapshot in snapshots:
        of.setdefault(snapshot.version, []).append(snapshot)
    latest = {key: _own(held) for key, held in of.items()}
    ends = {key: {held[0].key: held[0], latest[key].key: latest[key]} for key, held in of.items()}
    seen: set[tuple[int, int]] = set()

    def pairs(
        ones: Iterable[HeldSnapshot], others: Iterable[HeldSnapshot]
    ) -> Iterator[tuple[HeldSnapshot, HeldSnapshot]]:
        for one in ones:
            for other in others:
                pair = (min(one.key, other.key), max(one.key, other.key))
                if one.key != other.key and pair not in seen:
                    seen.add(pair)
                    yield one, other

    for held in of.values():
        for lag in LAGS:
            for one, other in zip(held[lag:], held, strict=False):
                yield from pairs([one], [other])
    by_id = {version.id: version for version in versions}
    names: dict[str, list[Version]] = {}
    children: dict[str, list[Version]] = {}
    for version in versions:
        names.setdefault(version.name, []).append(version)
        for parent, _ in version.parents:
            children.setdefault(parent, []).append(version)
        if version.key not in of:
            continue
        for ancestor in _ancestors(version, by_id):
            if ancestor.key in of:
                yield from pairs(ends[version.key].values(), [latest[ancestor.key]])
    lines = [(line, LAGS[-1]) for line in names.values()]
    lines += [(line, SIBLINGS) for line in children.values()]
    for line, reach in lines:
        kept = [version for version in line if version.key in of]
        for lag in range(1, reach + 1):
            for late, early in zip(kept[lag:], kept, strict=False):
                yield from pairs([latest[late.key]], [latest[early.key]])


def _own(held: Sequence[HeldSnapshot]) -> HeldSnapshot:
    return next((snapshot for snapshot in held if snapshot.own), held[-1])


def _ancestors(version: Version, by_id: Mapping[str, Version]) -> Iterator[Version]:
    """Parents, and their first parents up to the farthest lag."""
    for parent, _ in version.parents:
        found = by_id.get(parent)
        for _ in LAGS:
            if found is None:
                break
            yield found
            found = by_id.get(found.parents[0][0]) if found.parents else None


def _matched(
    one: HeldSnapshot, other: HeldSnapshot, stored: Mapping[str, StoredMatrix]
) -> Iterator[tuple[str, str]]:
    """Matrices of the same tensor; where names differ, of the same shape and role in order."""
    named = {name: digest for name, _, digest in other.tensors}
    taken = set()
    rest: list[tuple[str, str]] = []
    for name, role, digest in one.tensors:
        if name in named:
            taken.add(name)
            if _fits(stored.get(digest), stored.get(named[name])):
                yield digest, named[name]
        else:
            rest.append((role, digest))
    waiting: dict[tuple[str, str, tuple[int, ...]], list[str]] = {}
    for name, role, digest in other.tensors:
        matrix = stored.get(digest)
        if name not in taken and matrix is not None:
            waiting.setdefault((role, matrix.dtype, matrix.shape), []).append(digest)
    for role, digest in rest:
        matrix = stored.get(digest)
        if matrix is None:
            continue
        alike = waiting.get((role, matrix.dtype, matrix.shape))
        if alike:
            base = alike.pop(0)
            if base != digest:
                yield digest, base


def _fits(one: StoredMatrix | None, other: StoredMatrix | None) -> bool:
    """A delta never leaves dtype and rank."""
    return (
        one is not None
        and other is not None
        and one.hash != other.hash
        and one.dtype == other.dtype
        and len(one.shape) == len(other.shape)
        and min(one.shape, default=1) > 0
        and min(other.shape, default=1) > 0
    )
