"""The structure section of `diff`: layers of all versions in rows, one column a version."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dlv.diff import Diff
from dlv.network.alignment import ordered
from dlv.network.comparison import Change, Layer, Pair
from dlv.views.values import attribute

Key = tuple[str, str]


@dataclass
class StructureRow:
    """One thing about one layer; None where a version does not have the layer."""

    kind: str
    layer: str
    what: str
    values: list[str | None]


def structure_title(found: Diff) -> str:
    """`structure: 1 added, 2 changed, 6 unchanged`."""
    if len(found.sides) > 2:
        return "structure"
    compared = found.others[0].structure
    if compared is None:
        return "structure"
    follow = sum(pair.follows for pair in compared.changed)
    renamed = sum(_only(pair, "name") for pair in compared.changed)
    counts = {
        "added": len(compared.added),
        "removed": len(compared.removed),
        "changed": len(compared.changed) - renamed - follow + bool(compared.ends),
        "renamed": renamed,
        "reshaped": follow,
        "unchanged": len(compared.pairs) - len(compared.changed),
    }
    return "structure: " + ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)


def _only(pair: Pair, what: str) -> bool:
    return all(change.what in (what, "output") for change in pair.changes) and any(
        change.what == what for change in pair.changes
    )


def structure_rows(found: Diff, everything: bool) -> tuple[list[StructureRow], int]:
    """The rows, and how many layers are left out since they only follow others' shapes."""
    table = _Rows(len(found.sides))
    follow: set[str] = set()
    for place, other in enumerate(found.others, 1):
        compared = other.structure
        if compared is None:
            continue
        for change in compared.ends:
            table.change("(network)", place, change, "changed")
        for layer in compared.removed:
            table.whole(layer, 0, place)
        for pair in compared.pairs:
            if pair.follows and not everything:
                follow.add(pair.old.name)
            elif pair.changes:
                kind = "renamed" if _only(pair, "name") else "changed"
                for change in _told(pair, everything):
                    table.change(pair.old.name, place, change, kind)
            elif everything:
                table.same(pair, place)
        for layer in compared.added:
            table.whole(layer, place, 0)
    table.fill(found)
    places = _places(found)
    return sorted(table.rows.values(), key=lambda row: places.get(row.layer, (-1,))), len(follow)


def _places(found: Diff) -> dict[str, tuple[int, ...]]:
    """Where each layer stands: as in the reference; what others add is behind its forerunner."""
    base = found.sides[0].network
    places: dict[str, tuple[int, ...]] = {}
    for place, node in enumerate(() if base is None else ordered(base)):
        places.setdefault(node.name, (place,))
    for number, other in enumerate(found.others):
        if other.structure is None or other.side.network is None:
            continue
        names = {pair.new.name: pair.old.name for pair in other.structure.pairs}
        here = -1
        for count, node in enumerate(ordered(other.side.network)):
            name = names.get(node.name, node.name)
            here = places.setdefault(name, (here, number, count))[0]
    return places


def _told(pair: Pair, everything: bool) -> Iterator[Change]:
    """A new shape says nothing beside a new name; beside other changes it is their effect."""
    for change in pair.changes:
        if change.what != "output" or everything or not _only(pair, "name"):
            yield change


class _Rows:
    def __init__(self, sides: int) -> None:
        self.sides = sides
        self.rows: dict[Key, StructureRow] = {}

    def _row(self, key: Key, kind: str) -> StructureRow:
        if key not in self.rows:
            self.rows[key] = StructureRow(kind, *key, values=[None] * self.sides)
        return self.rows[key]

    def change(self, layer: str, place: int, change: Change, kind: str) -> None:
        row = self._row((layer, change.what), kind)
        row.values[0] = attribute(change.what, change.old)
        row.values[place] = attribute(change.what, change.new)

    def whole(self, layer: Layer, place: int, lacking: int) -> None:
        """A layer that one of the two does not have."""
        row = self._row((layer.name, "layer"), "added" if lacking == 0 else "removed")
        row.values[place] = _line(layer)

    def same(self, pair: Pair, place: int) -> None:
        row = self._row((pair.old.name, "layer"), "unchanged")
        row.values[0] = row.values[place] = pair.old.text

    def fill(self, found: Diff) -> None:
        """Beside what differs in one version stands what the others have."""
        for place, other in enumerate(found.others, 1):
            if other.structure is None:
                continue
            partner = {pair.old.name: pair for pair in other.structure.pairs}
            for (layer, what), row in self.rows.items():
                if row.values[place] is not None or row.values[0] is None:
                    continue
                if layer in partner:
                    new = partner[layer].new
                    row.values[place] = _line(new) if what == "layer" else row.values[0]
                elif layer == "(network)":
                    row.values[place] = row.values[0]


def _line(layer: Layer) -> str:
    after = f" after {', '.join(layer.after)}" if layer.after else ""
    return f"{layer.text}{after}"
