"""The table of all versions: chosen columns, sorted and filtered, a window of rows at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import dlv.report.lineage as lineage
import dlv.versions.history as history
from dlv.dataclass import dataclass
from dlv.errors import DlvError
from dlv.report.markup import Html, text
from dlv.report.markup import cell as cell_html
from dlv.repository.handle import Repository
from dlv.terminal.table import Cell, Number, Table, Text, is_numeric
from dlv.ui.frame import Frame
from dlv.versions.conditions import Key
from dlv.versions.history import Entry, Filter, Listing
from dlv.views.versions import entry_cell
from dlv.weights.store import MatrixStore, stored_series

WINDOW = 60  # rows that a page begins with, and that are fetched at once
MOST_WINDOW = 400
USUAL, SETTINGS = 3, 3  # metrics and hyperparameters that are shown unless others are chosen
FIXED = ("version", "created", "tags", "message")
PLAIN = ("id", "author", "framework", "parents", "state", "number", "name")


@dataclass(frozen=True)
class Asked:
    """What the address of the page says."""

    where: str = ""
    sort: str = ""
    columns: tuple[str, ...] = ()
    names: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Asked:
        columns = tuple(filter(None, (c.strip() for c in query.get("columns", "").split(","))))
        return cls(
            query.get("where", "").strip(), query.get("sort", ""), columns, query.get("names", "")
        )

    def query(self, **changes: str) -> dict[str, str]:
        """Return what the address of this table says, with some values changed."""
        held = {
            "names": self.names,
            "where": self.where,
            "sort": self.sort,
            "columns": ",".join(self.columns),
            **changes,
        }
        return {name: value for name, value in held.items() if value}

    @property
    def command(self) -> str:
        words = ["dlv list", *self.names.split()]
        for option, value in (("where", self.where), ("sort", self.sort)):
            words += [f"--{option} '{value}'"] if value else []
        words += [f"--columns {','.join(c for c in self.columns)}"] if self.columns else []
        return " ".join(words)


@dataclass
class Models:
    """A listing with its columns and, in the order of time, the lanes beside it."""

    listing: Listing
    columns: list[str]
    keys: dict[str, Key | None]
    known: dict[str, list[str]]  # kinds of columns that can be chosen
    lanes: list[lineage.Row]
    steps: dict[str, tuple[str, int]]  # `loss@100`: a metric at a step

    @property
    def count(self) -> int:
        return len(self.listing.entries)


def models(repository: Repository, asked: Asked) -> Models:
    """Return the versions that the address asks for, with the errors of `dlv list`."""
    steps = {name: found for name in asked.columns if (found := _at_step(name))}
    listed = [name for name in asked.columns if name not in steps]
    listing = history.list_versions(
        repository,
        Filter(
            patterns=asked.names.split(),
            where=[asked.where] if asked.where else [],
            sort=asked.sort or None,
            columns=",".join(listed) or None,
        ),
    )
    entries = listing.entries
    parameters = _apart(entries)
    metrics = sorted({name for entry in entries for name in entry.metrics})
    keys: dict[str, Key | None] = dict(listing.columns)
    columns = list(asked.columns)
    if not columns:
        usual = [name for name in listing.usual if "/" not in name][:USUAL] or listing.usual[:USUAL]
        keys |= {name: Key(name, "last") for name in usual}
        keys |= {name: Key(name) for name in parameters[:SETTINGS]}
        columns = ["created", *usual, *parameters[:SETTINGS], "tags", "message"]
        keys |= dict.fromkeys(("created", "tags", "message"))
    lanes = []
    if not asked.sort and not asked.where and not asked.names:
        ordered = history.children_first({e.version.id: e.version for e in entries})
        by_id = {entry.version.id: entry for entry in entries}
        listing.entries[:] = [by_id[version.id] for version in ordered]
        known = by_id.keys()
        lanes = lineage.rows(
            (e.version.id, [p.id for p in e.parents if p.id in known]) for e in listing.entries
        )
    every = sorted({name for entry in entries for name in entry.parameters})
    kinds = {"fields": [*FIXED[1:], *PLAIN], "metrics": metrics, "hyperparameters": every}
    return Models(listing, columns, keys, kinds, lanes, steps)


def _at_step(name: str) -> tuple[str, int] | None:
    metric, at, step = name.rpartition("@")
    return (metric, int(step)) if at and metric and step.isdigit() and len(step) < 16 else None


def _apart(entries: Sequence[Entry]) -> list[str]:
    """Hyperparameters that are not the same everywhere, those that most versions have first."""
    count: dict[str, int] = {}
    values: dict[str, set[str]] = {}
    for entry in entries:
        for name, value in entry.parameters.items():
            count[name] = count.get(name, 0) + 1
            if len(held := values.setdefault(name, set())) < 2:
                held.add(repr(value))
    found = [name for name in count if len(values[name]) > 1]
    return sorted(found, key=lambda name: (-count[name], name))


def head(models: Models, asked: Asked, frame: Frame) -> Html:
    """The titles; a click sorts."""
    cells = ['<th scope="col"><span class="hidden">choose</span></th>']
    if models.lanes:
        cells.append('<th scope="col"><span class="hidden">lineage</span></th>')
    for name in ["version", *models.columns]:
        sortable = name not in models.steps and name not in ("tags", "parents", "metrics", "id")
        here = asked.sort == name
        title = "age" if name == "created" else name
        if sortable:
            mark = ' aria-sort="other"' if here else ""
            address = frame.addresses.versions(asked.query(sort="" if here else name))
            sort = ' class="n"' if _is_numeric(models, name) else ""
            cells.append(
                f'<th scope="col"{mark}{sort}><a href="{text(address)}">{text(title)}'
                f"{' ↓' if here else ''}</a></th>"
            )
        else:
            cells.append(f'<th scope="col">{text(title)}</th>')
    return Html(f"<tr>{''.join(cells)}</tr>")


def rows(
    repository: Repository, models: Models, frame: Frame, start: int = 0, count: int = WINDOW
) -> Html:
    """The rows from `start` on, one line of the table each."""
    start, count = max(0, start), min(max(0, count), MOST_WINDOW)
    width = max((row.lane + 1 for row in models.lanes), default=0)
    lines = []
    entries = models.listing.entries[start : start + count]
    points = _values_at(repository, entries, models.steps)
    numeric = {name for name in models.columns if _is_numeric(models, name)}
    for place, entry in enumerate(entries, start):
        label = entry.version.label
        where = frame.addresses.version(label)
        lanes = ""
        if models.lanes:
            lanes = f"<td>{lineage.cell(models.lanes[place], width)}</td>"
        cells = "".join(
            _cell(entry, name, models, points, frame, number=name in numeric)
            for name in models.columns
        )
        head = ' <span class="badge">HEAD</span>' if entry.head else ""
        lines.append(
            f'<tr data-row="{place}"><td><input type="checkbox" name="v" value="{text(label)}"'
            f' aria-label="choose {text(label)}"></td>{lanes}<td><a href="{text(where)}">'
            f"{text(label)}</a>{head}</td>{cells}</tr>"
        )
    return Html("".join(lines))


def _is_numeric(models: Models, name: str) -> bool:
    """Whether the first versions have only numbers there."""
    if name in models.steps:
        return True
    some = models.listing.entries[:WINDOW]
    values = [entry_cell(entry, name, models.keys.get(name)) for entry in some]
    known = [value for value in values if value is not None]
    return bool(known) and all(map(is_numeric, known))


def plain_table(models: Models, count: int) -> Table:
    """The first rows as a table, for notebooks."""
    rows: list[list[Cell]] = [
        [entry.version.label, *(entry_cell(entry, n, models.keys.get(n)) for n in models.columns)]
        for entry in models.listing.entries[:count]
    ]
    return Table(["version", *models.columns], rows)


def _cell(
    entry: Entry,
    name: str,
    models: Models,
    points: Mapping[tuple[str, str], float],
    frame: Frame,
    *,
    number: bool,
) -> str:
    value: Cell
    if name in models.steps:
        found = points.get((entry.version.id, name))
        value = None if found is None else Number(found)
    else:
        value = entry_cell(entry, name, models.keys.get(name))
    if isinstance(value, str) and name == "message":
        return f'<td class="message" title="{text(value)}">{text(value)}</td>'
    if name == "tags":
        tags = "".join(f'<span class="badge">{text(tag)}</span>' for tag in entry.version.tags)
        return f"<td>{tags}</td>"
    sort = ' class="n"' if number else ""
    return f"<td{sort}>{cell_html(_plain(value), frame.now)}</td>"


def _plain(value: Cell) -> Cell:
    """Without the styles of a terminal."""
    return Text(value.value) if isinstance(value, Text) else value


def _values_at(
    repository: Repository, entries: Sequence[Entry], steps: Mapping[str, tuple[str, int]]
) -> dict[tuple[str, str], float]:
    """Metrics at steps, of the rows that are shown: the last value logged up to each step."""
    found: dict[tuple[str, str], float] = {}
    if not steps:
        return found
    store = MatrixStore.of(repository)
    try:
        for entry in entries:
            for column, (metric, step) in steps.items():
                summary = entry.metrics.get(metric)
                if summary is None or not summary.hash:
                    continue
                try:
                    series = stored_series(store, summary.hash)
                except DlvError:
                    continue
                before = [v for s, v in zip(series.steps, series.values, strict=True) if s <= step]
                if before:
                    found[entry.version.id, column] = before[-1]
    finally:
        store.close()
    return found


def completions(models: Models) -> str:
    """Names for the filter, as JSON."""
    names = [*models.known["metrics"], *models.known["hyperparameters"]]
    return json.dumps([name for name in names if not set(name) & set(" <>=!\"'")][:2000])


def choice(models: Models) -> list[dict[str, Any]]:
    """Groups of columns to choose from."""
    chosen = set(models.columns)
    return [
        {"title": kind, "names": [{"name": n, "chosen": n in chosen} for n in names[:400]]}
        for kind, names in models.known.items()
        if names
    ]
