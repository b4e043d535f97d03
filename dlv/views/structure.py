"""The structure section of `diff`: layers of all versions in rows, one column a version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from dlv.network.likeness.alignment import ordered
from dlv.network.likeness.comparison import Change, Layer, Pair
from dlv.versions.diff import Diff
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
    """`structure: equal up to names (6 renamed)`, `structure: 1 added, 2 changed, 6 unchanged`."""
    if len(found.sides) > 2:
        return "structure"
    compared = found.others[0].structure
    if compared is None:
        return "structure"
    kinds = Counter(pair.kind for pair in compared.pairs)
    real = any(not change.form for change in compared.ends)
    counts = {
        "added": len(compared.added),
        "removed": len(compared.removed),
        "changed": kinds["changed"] + real,
        "renamed": kinds["renamed"],
        "stored otherwise": kinds["stored"] + (bool(compared.ends) and not real),
        "reshaped": kinds["reshaped"],
        "unchanged": kinds["unchanged"],
    }
    told = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    equal = equal_text(found, 0)
    return f"structure: {equal} ({told})" if equal else f"structure: {told}"


def equal_text(found: Diff, place: int) -> str:
    """`equal up to names and storage, but for prob in net@2`; empty if it is not so."""
    other = found.others[place]
    compared = other.structure
    if compared is None or not compared.equal or not compared.up_to:
        return ""
    text = "equal up to " + " and ".join(compared.up_to)
    alone = [
        f"{', '.join(names)} in {side.label}"
        for names, side in ((compared.only_old, found.sides[0]), (compared.only_new, other.side))
        if names
    ]
    return text + (", but for " + " and ".join(alone) if alone else "")


@dataclass
class Hidden:
    """Layers of which nothing is shown, as they only follow others or only are stored otherwise."""

    follow: set[str] = field(default_factory=set)
    stored: dict[str, None] = field(default_factory=dict)
    what: dict[str, None] = field(default_factory=dict)  # which attributes say so


def structure_rows(found: Diff, everything: bool) -> tuple[list[StructureRow], Hidden]:
    """The rows, and what is left out of them."""
    table = _Rows(len(found.sides))
    hidden = Hidden()
    for place, other in enumerate(found.others, 1):
        compared = other.structure
        if compared is None:
            continue
        for change in compared.ends:
            table.change("(network)", place, change, "stored" if change.form else "changed")
        for layer in compared.removed:
            table.whole(layer, 0, place)
        for pair in compared.pairs:
            if pair.follows and not everything:
                hidden.follow.add(pair.old.name)
            elif pair.changes:
                for change in _told(pair, everything, hidden):
                    table.change(pair.old.name, place, change, _kind(pair, change))
            elif everything:
                table.same(pair, place)
        for layer in compared.added:
            table.whole(layer, place, 0)
    table.fill(found)
    places = _places(found)
    return sorted(table.rows.values(), key=lambda row: places.get(row.layer, (-1,))), hidden


def _kind(pair: Pair, change: Change) -> str:
    if change.form:
        return "stored"
    return "renamed" if pair.kind != "changed" else "changed"


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


def _told(pair: Pair, everything: bool, hidden: Hidden) -> Iterator[Change]:
    """A new shape says nothing beside a new name; beside other changes it is their effect."""
    for change in pair.changes:
        if everything:
            yield change
        elif change.form:
            hidden.stored[pair.old.name] = None
            hidden.what[change.what] = None
        elif change.what != "output" or pair.kind == "changed":
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
