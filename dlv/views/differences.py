"""How `diff` lays versions out: tables for people and pipes, Markdown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from dlv.dataclass import dataclass
from dlv.network.likeness.alignment import ordered
from dlv.network.likeness.comparison import Change, Layer, Pair
from dlv.terminal.output import Block, Heading, Verbatim
from dlv.terminal.table import (
    Bytes,
    Cell,
    Column,
    Id,
    Number,
    Range,
    Table,
    Text,
    Time,
    human_bytes,
    outwards,
)
from dlv.versions.diff import ABSENT, Diff, Row
from dlv.versions.working_side import LABEL as WORKING
from dlv.views.values import (
    attribute,
    bounded_difference,
    columns_where,
    interval_cell,
    number_cell,
    percent,
    plural,
    reading_lines,
    setting,
    shape,
)
from dlv.weights.snapshots import Matrix

if TYPE_CHECKING:
    from dlv.versions.matrix_pairs import MatrixPair

# Layers: rows of all versions, one column a version


Key = tuple[str, str]


@dataclass
class StructureRow:
    """One thing about one layer; None where a version does not have the layer."""

    kind: str
    layer: str
    what: str
    values: list[str | None]


def structure_title(diff: Diff) -> str:
    """`structure: equal up to names (6 renamed)`, `structure: 1 added, 2 changed, 6 unchanged`."""
    if len(diff.sides) > 2:
        return "structure"
    compared = diff.others[0].structure
    if compared is None:
        return "structure"
    kinds = Counter(pair.kind for pair in compared.pairs)
    real = any(not change.form for change in compared.ends)
    counts = {
        "added": len(compared.added),
        "removed": len(compared.removed),
        "changed": kinds["changed"] + real,
        "renamed": kinds["renamed"],
        "stored differently": kinds["stored"] + (bool(compared.ends) and not real),
        "reshaped": kinds["reshaped"],
        "unchanged": kinds["unchanged"],
    }
    told = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    equal = equal_text(diff, 0)
    return f"network: {equal} ({told})" if equal else f"network: {told}"


def equal_text(diff: Diff, place: int) -> str:
    """`equal up to names and storage, but for prob in net@2`; empty if it is not so."""
    other = diff.others[place]
    compared = other.structure
    if compared is None or not compared.equal or not compared.up_to:
        return ""
    text = "equal up to " + " and ".join(compared.up_to)
    alone = [
        f"{', '.join(names)} in {side.label}"
        for names, side in ((compared.only_old, diff.sides[0]), (compared.only_new, other.side))
        if names
    ]
    return text + (", but for " + " and ".join(alone) if alone else "")


@dataclass
class Hidden:
    """Layers of which nothing is shown, as they only follow others or only are stored otherwise."""

    follow: set[str] = field(default_factory=set)
    stored: dict[str, None] = field(default_factory=dict)
    what: dict[str, None] = field(default_factory=dict)  # which attributes say so


def structure_rows(diff: Diff, everything: bool) -> tuple[list[StructureRow], Hidden]:
    """The rows, and what is left out of them."""
    table = _Rows(len(diff.sides))
    hidden = Hidden()
    for place, other in enumerate(diff.others, 1):
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
    table.fill(diff)
    places = _places(diff)
    return sorted(table.rows.values(), key=lambda row: places.get(row.layer, (-1,))), hidden


def _kind(pair: Pair, change: Change) -> str:
    if change.form:
        return "stored"
    return "renamed" if pair.kind != "changed" else "changed"


def _places(diff: Diff) -> dict[str, tuple[int, ...]]:
    """Where each layer stands: as in the reference; what others add is behind its forerunner."""
    base = diff.sides[0].network
    places: dict[str, tuple[int, ...]] = {}
    for place, node in enumerate(() if base is None else ordered(base)):
        places.setdefault(node.name, (place,))
    for number, other in enumerate(diff.others):
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

    def fill(self, diff: Diff) -> None:
        """Beside what differs in one version stands what the others have."""
        for place, other in enumerate(diff.others, 1):
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


MARKS = {
    "added": "+",
    "removed": "-",
    "changed": "~",
    "renamed": ">",
    "rearranged": "=",
    "stored": "=",
    "unchanged": " ",
}
_FIGURES = ("l2", "relative", "max_abs", "changed", "nonfinite", "change", "lines")
_STYLES = {"+": "green", "-": "red", "~": "yellow", ">": "cyan", "=": "cyan"}


@dataclass(frozen=True)
class Section:
    title: str
    table: Table | None = None
    note: str = ""


def mark(kind: str) -> Text:
    """How a row differs, as a sign that needs no colour."""
    sign = MARKS[kind]
    return Text(sign, _STYLES.get(sign, ""))


def text(diff: Diff, everything: bool, terminal: bool) -> Iterator[Block]:
    """The versions, what differs, and in one line what does not."""
    rows: list[list[Cell]] = [
        [
            Text(side.label, "bold"),
            None if side.label == WORKING else Id(side.version.id),
            None if side.label == WORKING else Time(side.version.created),
            side.version.message.split("\n")[0],
        ]
        for side in diff.sides
    ]
    yield Table([Column("version", fixed=True), "id", Column("age", "created"), "message"], rows)
    yield from _relations(diff)
    for section in sections(diff, everything, terminal):
        yield from ("", Heading(section.title))
        if section.table is not None and section.table.rows:
            yield section.table
        if section.note:
            yield section.note
    same = list(_same(diff))
    if same:
        yield from ("", "the same: " + ", ".join(same))


def _relations(diff: Diff) -> Iterator[str]:
    for other in diff.others:
        if other.relation.kind == "same" and other.side.label != diff.sides[0].label:
            yield f"both are checkpoints of {other.side.version.label}"
        else:
            yield other.relation.text


def markdown(diff: Diff, everything: bool) -> Verbatim:
    """For a pull request: numbers with four digits."""
    labels = [side.label for side in diff.sides]
    lines = [f"## {labels[0]} and {', '.join(labels[1:])}", ""]
    lines += [f"{text}  " for text in _relations(diff)]
    for section in sections(diff, everything, True):
        lines += ["", f"### {section.title}", ""]
        if section.table is not None and section.table.rows:
            rows = [[_rounded(cell) for cell in row] for row in section.table.rows]
            lines += Table(section.table.columns, rows).markdown()
        if section.note:
            lines += ["", section.note]
    same = list(_same(diff))
    return Verbatim([*lines, *(["", "The same: " + ", ".join(same)] if same else [])])


def _rounded(cell: Cell) -> Cell:
    if isinstance(cell, Bytes):
        return human_bytes(cell.value)
    if isinstance(cell, Range):
        return outwards(cell)
    if isinstance(cell, Number) and math.isfinite(cell.value):
        value = float(f"{cell.value:.{cell.digits}g}")
        return int(value) if value.is_integer() and abs(value) < 1e9 else value
    return cell


def sections(diff: Diff, everything: bool, lean: bool) -> Iterator[Section]:
    """The chosen sections that have something to show; `lean`: without empty columns."""
    for section in _sections(diff, everything):
        if lean and section.table is not None:
            table = columns_where(
                section.table, lambda column, cells: column.name not in _FIGURES or any(cells)
            )
            section = replace(section, table=table)
        yield section


def _sections(diff: Diff, everything: bool) -> Iterator[Section]:
    if "structure" in diff.sections:
        yield from _structure(diff, everything)
    if any(_shown(other.matrices, everything) or other.hidden for other in diff.others):
        yield _matrices(diff, everything)
    for title, rows in (("hyperparameters", diff.params), ("metrics", diff.metrics)):
        if any(row.differs or everything for row in rows):
            yield _settings(title, rows, diff, everything)
    if any(row.differs or everything for row in diff.files):
        yield _files(diff, everything)


def _structure(diff: Diff, everything: bool) -> Iterator[Section]:
    without = diff.without_network
    if without and len(without) < len(diff.sides):
        names = " and ".join(dict.fromkeys(side.label for side in without))
        have = "has" if len(without) == 1 else "have"
        yield Section(f"structure: not compared, {names} {have} no network")
    compared = [other for other in diff.others if other.structure is not None]
    if not compared:
        return
    rows, hidden = structure_rows(diff, everything)
    notes = list(_left_out(diff, hidden))
    if not rows and not notes:
        return
    columns: list[Column | str] = [
        Column("layer", least=12),
        "what",
        *(side.label for side in diff.sides),
    ]
    cells: list[list[Cell]] = [[row.layer, row.what, *row.values] for row in rows]
    if len(diff.sides) == 2:
        columns = [Column("", "mark", fixed=True), *columns]
        cells = [[mark(row.kind), *line] for row, line in zip(rows, cells, strict=True)]
    yield Section(structure_title(diff), Table(columns, cells), "; ".join(notes))


def _left_out(diff: Diff, hidden: Hidden) -> Iterator[str]:
    """What no row says."""
    if len(diff.sides) > 2:
        for place, other in enumerate(diff.others):
            if text := equal_text(diff, place):
                yield f"{other.side.label} is {text}"
    follow = len(hidden.follow)
    if follow:
        text = plural(follow, "more layer changes", "more layers change")
        yield text + f" only in the shape {'it gets' if follow == 1 else 'they get'} (--all)"
    if hidden.stored:
        text = plural(len(hidden.stored), "layer is", "layers are")
        yield f"{text} written or stored differently: {', '.join(hidden.what)} (--all)"


def _shown(pairs: Sequence[MatrixPair], everything: bool) -> list[MatrixPair]:
    return [pair for pair in pairs if everything or pair.status != "unchanged"]


def _matrices(diff: Diff, everything: bool) -> Section:
    statuses = [pair.status for other in diff.others for pair in other.matrices]
    hidden = sum(other.hidden for other in diff.others)
    note = ""
    if hidden:
        note = f"{plural(hidden, 'more difference')} in the optimizer's tensors (--all)"
    readings = [p.reading for other in diff.others for p in other.matrices if p.reading]
    note = "; ".join([*([note] if note else []), *reading_lines(readings)])
    if len(diff.sides) > 2:
        title = f"tensors: relative L2 of the difference to {diff.sides[0].label}"
        return Section(title, _matrices_beside(diff, everything), note)
    title = "tensors: " + tally(statuses)
    return Section(title, _matrix_table(_shown(diff.others[0].matrices, everything)), note)


def tally(statuses: Sequence[str]) -> str:
    """`2 changed, 1 added, 5 unchanged`."""
    counts = [(statuses.count(kind), kind) for kind in MARKS]
    return ", ".join(f"{count} {kind}" for count, kind in counts if count)


def _matrix_table(pairs: Sequence[MatrixPair]) -> Table:
    columns: list[Column | str] = [
        Column("", "mark", fixed=True),
        Column("tensor", least=16),
        "shape",
    ]
    whole = any(pair.bounds is not None for pair in pairs)  # the end of a range is not cut away
    columns += [Column(title, fixed=whole) for title in ("L2", "relative", "max abs")]
    columns.append(Column("% changed", "changed", fixed=whole))
    columns.append(Column("NaN, inf", "nonfinite"))
    rows: list[list[Cell]] = []
    for pair in pairs:
        apart = pair.difference
        row: list[Cell] = [mark(pair.status), _names(pair), _extent(pair)]
        if pair.bounds is not None:
            row += bounded_difference(pair.bounds).values()
        elif apart is None:
            row += [None] * 5
        else:
            row += [
                number_cell(apart.l2),
                number_cell(apart.relative_l2),
                number_cell(apart.max_abs),
            ]
            row += [percent(apart.changed, apart.elements), apart.nonfinite]
        rows.append(row)
    return Table(columns, rows)


def _names(pair: MatrixPair) -> str:
    if pair.old is None or pair.new is None or pair.old.name == pair.new.name:
        return pair.name
    return f"{pair.old.name} → {pair.new.name}"


def _extent(pair: MatrixPair) -> str:
    """The shape, and the dtype where it tells something; both of each side where they differ."""
    old, new = pair.old, pair.new
    if old is None or new is None:
        return " ".join(_shape_and_dtype(old or new))
    a, b = _shape_and_dtype(old), _shape_and_dtype(new)
    if a == b:
        return a[0]
    if a[0] == b[0]:
        return f"{a[0]} {a[1]} → {b[1]}"
    if a[1] == b[1]:
        return f"{a[0]} → {b[0]}"
    return f"{a[0]} {a[1]} → {b[0]} {b[1]}"


def _shape_and_dtype(matrix: Matrix | None) -> tuple[str, str]:
    assert matrix is not None
    return shape(matrix.shape), matrix.dtype


def _matrices_beside(diff: Diff, everything: bool) -> Table:
    """More than two versions: a column each, with shapes in brackets."""
    lines: dict[str, list[Cell]] = {}
    shown: set[str] = set()
    for place, other in enumerate(diff.others, 1):
        for pair in other.matrices:
            line = lines.setdefault(pair.name, [None] * len(diff.sides))
            if pair.old is not None:
                line[0] = f"[{shape(pair.old.shape)}]"
            line[place] = _beside(pair)
            if everything or pair.status != "unchanged":
                shown.add(pair.name)
    rows: list[list[Cell]] = [[name, *line] for name, line in lines.items() if name in shown]
    return Table([Column("tensor", least=16), *(side.label for side in diff.sides)], rows)


def _beside(pair: MatrixPair) -> Cell:
    if pair.new is None:
        return None
    if pair.status in ("unchanged", "renamed", "rearranged"):
        return "="
    apart = pair.difference
    if pair.bounds is not None:
        return interval_cell(pair.bounds.relative_l2) or "changed"
    if apart is None:
        return f"[{_extent(pair).rpartition('→ ')[2]}]"
    return number_cell(apart.relative_l2) or "changed"


def _settings(title: str, rows: Sequence[Row], diff: Diff, everything: bool) -> Section:
    differing = [row for row in rows if row.differs]
    shown = list(rows) if everything else differing
    two = len(diff.sides) == 2
    columns: list[Column | str] = [Column("name", fixed=True), *(side.label for side in diff.sides)]
    cells: list[list[Cell]] = []
    for row in shown:
        line: list[Cell] = [row.name, *map(_value, row.values)]
        if two:
            line.insert(0, mark(kind_of(row)))
            if title == "metrics":
                change = delta(row.values)
                line.append(None if change is None else Number(change, 3))
        cells.append(line)
    if two:
        columns.insert(0, Column("", "mark", fixed=True))
        if title == "metrics":
            columns.append(Column("change"))
    kinds = [kind_of(row) for row in rows]
    return Section(f"{title}: {tally(kinds)}" if two else title, Table(columns, cells))


def kind_of(row: Row) -> str:
    """added, removed, changed or unchanged, of two versions."""
    first, last = row.values[0], row.values[-1]
    if first is ABSENT or last is ABSENT:
        return "added" if first is ABSENT and last is not ABSENT else "removed"
    return "changed" if row.differs else "unchanged"


def _value(value: Any) -> Cell:
    if value is ABSENT:
        return None
    if hasattr(value, "last"):
        return Number(float("nan") if value.last is None else value.last)
    return setting(value)


def delta(values: Sequence[Any]) -> float | None:
    """Last value less the reference's last value, if both are numbers."""
    last = [None if value is ABSENT else value.last for value in values]
    if last[0] is None or last[-1] is None:
        return None
    return float(last[-1] - last[0])


def _files(diff: Diff, everything: bool) -> Section:
    shown = [row for row in diff.files if row.differs or everything]
    columns: list[Column | str] = [Column("path", least=20), *(side.label for side in diff.sides)]
    if len(diff.sides) > 2:
        cells: list[list[Cell]] = [[row.name, *_sizes(row)] for row in shown]
        return Section("files: size, = where the content is the first one's", Table(columns, cells))
    rows: list[list[Cell]] = []
    for row in shown:
        sizes = [None if entry is ABSENT else Bytes(entry.bytes) for entry in row.values]
        lines = row.lines[0] if row.lines else None
        counts = None if lines is None else f"+{lines.added} -{lines.removed}"
        rows.append([mark(kind_of(row)), row.name, *sizes, counts])
    title = "files: " + tally([kind_of(row) for row in diff.files])
    return Section(title, Table([Column("", "mark", fixed=True), *columns, "lines"], rows))


def _sizes(row: Row) -> Iterator[Cell]:
    first = row.values[0]
    for place, entry in enumerate(row.values):
        if entry is ABSENT:
            yield None
        elif place and first is not ABSENT and first.blake3 == entry.blake3:
            yield "="
        else:
            yield Bytes(entry.bytes)


def _same(diff: Diff) -> Iterator[str]:
    """What was compared and does not differ."""
    compared = [other.structure for other in diff.others if other.structure is not None]
    if compared and len(compared) == len(diff.others) and all(c.same for c in compared):
        yield f"network ({plural(len(compared[0].pairs), 'layer')})"
    pairs = [pair for other in diff.others for pair in other.matrices]
    if (
        pairs
        and all(pair.status == "unchanged" for pair in pairs)
        and not any(other.hidden for other in diff.others)
    ):
        yield plural(len(diff.others[0].matrices), "tensor", "tensors")
    for rows, one in (
        (diff.params, "hyperparameter"),
        (diff.metrics, "metric"),
        (diff.files, "file"),
    ):
        if rows and not any(row.differs for row in rows):
            yield plural(len(rows), one)
