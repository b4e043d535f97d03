"""The matrices that a snapshot of a version holds, and which of them belong together."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from dlv.dataclass import dataclass
from dlv.dtypes import ITEM_BYTES
from dlv.errors import NotFound, nearest
from dlv.objects.manifest import Manifest

MODEL_ROLES = ("weight", "buffer")


@dataclass(frozen=True)
class Matrix:
    """A named tensor of one snapshot."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: str
    tied: str | None
    hash: str

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int | None:
        """Size in memory; None of a dtype that dlv does not know."""
        item = ITEM_BYTES.get(self.dtype)
        return None if item is None else self.elements * item


def matrices(manifest: Manifest, index: int | None = None) -> list[Matrix]:
    """Those of one snapshot, by default of the version's own weights."""
    index = manifest.own if index is None else index
    if index is None:
        return []
    return [
        Matrix(entry.name, entry.dtype, entry.shape, entry.role, entry.tied, digest)
        for entry, digest in zip(manifest.tensors, manifest.snapshots[index].hashes, strict=True)
        if digest is not None
    ]


def find(
    held: Sequence[Matrix], name: str, label: str, layers: Mapping[str, Sequence[str]]
) -> Matrix:
    """The matrix of that name; `layers` gives the tensors of each layer, for what was meant."""
    for matrix in held:
        if matrix.name == name:
            return matrix
    if name in layers:
        raise NotFound(
            f"`{name}` is a layer of {label}, not a matrix",
            did_you_mean=list(layers[name])[:3],
            hint=f"dlv desc {label}",
        )
    known = [matrix.name for matrix in held]
    many = f"{len(known)} {'matrix' if len(known) == 1 else 'matrices'}"
    raise NotFound(
        f"{label} has no matrix `{name}`",
        why=f"its weights hold {many}" if known else "it holds no weights",
        did_you_mean=nearest(name, known) or [n for n in known if n.endswith(f".{name}")][:3],
        hint=f"dlv desc {label}",
    )


def _ends_alike(a: str, b: str) -> bool:
    return a.endswith(f".{b}") or b.endswith(f".{a}")


def pair(
    old: Sequence[Matrix],
    new: Sequence[Matrix],
    slots: Iterable[tuple[str, str]] = (),
    apart: Collection[str] = (),
) -> list[tuple[Matrix | None, Matrix | None]]:
    """Which matrix of one snapshot is which of another; None on one side: only in the other.

    First by `slots`, pairs of names known to mean the same; then by name, but for those
    `apart`; last by content, where just one on each side has it, or just one has this name
    but for a prefix: `embed.weight` and `head.weight`, tied, in `model.` later.
    """
    before = {matrix.name: matrix for matrix in old}
    after = {matrix.name: matrix for matrix in new}
    partner: dict[str, str] = {}
    taken: set[str] = set()

    def join(a: str, b: str) -> None:
        if a in before and b in after and a not in partner and b not in taken:
            partner[a] = b
            taken.add(b)

    for a, b in slots:
        join(a, b)
    for name in before:
        if name not in apart:
            join(name, name)
    places: dict[str, list[str]] = {}
    for matrix in new:
        if matrix.name not in taken:
            places.setdefault(matrix.hash, []).append(matrix.name)
    left = [matrix for matrix in old if matrix.name not in partner]
    for matrix in left:
        alike = places.get(matrix.hash, [])
        equal = [other.name for other in left if other.hash == matrix.hash]
        if len(alike) > 1 or len(equal) > 1:
            alike = [name for name in alike if _ends_alike(matrix.name, name)]
            equal = [name for name in equal if alike and _ends_alike(name, alike[0])]
        if len(alike) == len(equal) == 1:
            join(matrix.name, alike[0])
    found: list[tuple[Matrix | None, Matrix | None]] = [
        (matrix, after[partner[matrix.name]] if matrix.name in partner else None) for matrix in old
    ]
    return [*found, *((None, matrix) for matrix in new if matrix.name not in taken)]
