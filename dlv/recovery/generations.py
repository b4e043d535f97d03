"""Which of several stored encodings of a matrix counts, when only the packs can tell.

Packs that came together are a generation: those of one archive, those of all commits. Within one
every encoding is whole; across them planes and side data must not be mixed, even where the
configuration is the same. The newest generation counts, unless something of it is missing or a
chain of bases would end nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from dlv.errors import Damaged, DlvError
from dlv.kinds import Piece, Raw
from dlv.pas.deltas.links import link_of
from dlv.pas.footer import Encoding, Footer, pieces_of


@dataclass(frozen=True)
class Found:
    """A pack that was read."""

    name: str
    size: int
    footer: Footer


def left_out(
    generations: Sequence[Sequence[Found]], torn: Set[int] = frozenset()
) -> list[set[str]]:
    """For each generation, newest first, the matrices that count elsewhere.

    Of those that are torn some pack cannot be read.
    """
    ways: dict[str, list[tuple[int, str | None]]] = {}
    for age, packs in enumerate(generations):
        for matrix, base in _held(packs).items():
            ways.setdefault(matrix, []).append((age, base))
    doubtful = {matrix for matrix, found in ways.items() if len(found) > 1}
    held = {matrix: list(found) for matrix, found in ways.items()}
    for age, packs in enumerate(generations):
        for matrix in _broken(packs, doubtful, torn=age in torn):
            whole = [way for way in ways[matrix] if way[0] != age]
            ways[matrix] = whole or ways[matrix]
    chosen = _chosen(ways)
    left: list[set[str]] = [set() for _ in generations]
    for matrix, found in held.items():
        for age in {age for age, _ in found} - {chosen[matrix]}:
            left[age].add(matrix)
    return left


def _held(packs: Iterable[Found]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for pack in packs:
        for encoding in pack.footer.encodings:
            found.setdefault(encoding.matrix, _base(encoding))
    return found


def _base(encoding: Encoding) -> str | None:
    return None if encoding.delta is None else str(encoding.delta.get("base"))


def _broken(packs: Sequence[Found], asked: set[str], *, torn: bool) -> Iterator[str]:
    """Of the matrices asked for, those that these packs do not hold whole."""
    encodings: dict[str, Encoding] = {}
    pieces: dict[str, dict[tuple[object, ...], Piece]] = {}
    for pack in packs:
        mine = {
            encoding.matrix
            for encoding in pack.footer.encodings
            if encoding.matrix in asked
            and encodings.setdefault(encoding.matrix, encoding) == encoding
        }
        for piece in pieces_of(pack.footer, pack.name) if mine else ():
            if piece.object in mine and piece.kind in ("plane", "side"):
                # Two commits at one time may both have brought it.
                place = (piece.kind, piece.plane, piece.start)
                pieces.setdefault(piece.object, {}).setdefault(place, piece)
    for matrix, encoding in encodings.items():
        try:
            link = link_of(encoding, _Rows(pieces.get(matrix, {}).values()), encoding.planes)
        except DlvError:
            yield matrix
        else:
            # A plane may have nothing in it; but was it so?
            if torn and not encoding.empty and not all(link.planes):
                yield matrix


class _Rows:
    """The chunks of one matrix as far as footers tell of them."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self._pieces = list(pieces)

    def chunks(self, _: str, /) -> Sequence[Piece]:
        return self._pieces

    def read(self, piece: Piece) -> Raw:
        raise Damaged(f"pack {piece.pack} is not open")

    stored = read

    def object(self, kind: str, name: str) -> Raw:
        raise Damaged(f"{kind} {name} is not open")


def _chosen(ways: Mapping[str, Sequence[tuple[int, str | None]]]) -> dict[str, int]:
    """The newest way of each, and an older one where that leads in a circle or nowhere."""
    chosen = {matrix: found[0] for matrix, found in ways.items()}
    ends = _ending(chosen)
    while True:
        others = {
            matrix: way
            for matrix in chosen.keys() - ends
            for way in [w for w in ways[matrix] if w[1] is None or w[1] in ends][:1]
        }
        if not others:
            return {matrix: age for matrix, (age, _) in chosen.items()}
        chosen |= others
        ends = _ending(chosen)


def _ending(chosen: Mapping[str, tuple[int, str | None]]) -> set[str]:
    """Those whose chain of bases comes to a matrix that stands on its own."""
    ends: dict[str, bool] = {}
    for matrix in chosen:
        path: list[str] = []
        name: str | None = matrix
        on_path: set[str] = set()
        while name is not None and name in chosen and name not in ends and name not in on_path:
            path.append(name)
            on_path.add(name)
            name = chosen[name][1]
        well = name is None or ends.get(name, False)
        ends.update(dict.fromkeys(path, well))
    return {matrix for matrix, well in ends.items() if well}
