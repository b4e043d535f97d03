"""A version in sections: what it is, its curves and network, tensors, evaluations, files."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path

import dlv.disk.user_files as user_files
import dlv.report.lineage as lineage
import dlv.report.network_picture as network_picture
import dlv.report.page as page
import dlv.report.plots as plots
import dlv.report.raster as raster
import dlv.ui.curves as curves
import dlv.versions.history as history
import dlv.views.description as view
from dlv.errors import UsageError
from dlv.report.courses import Chart
from dlv.report.markup import Html, scrolling, text
from dlv.report.page import Section
from dlv.repository.handle import Repository
from dlv.terminal.output import Fields, Heading
from dlv.terminal.table import Cell, Count, Table, human_bytes
from dlv.ui.frame import Frame, same_names, with_column, without
from dlv.ui.frame import write as write_report
from dlv.versions.describe import Description

AROUND = 12  # versions that are drawn around one


def sections(
    repository: Repository,
    described: Description,
    frame: Frame,
    charts: Sequence[Chart] | None = None,
) -> list[Section]:
    """Everything that `desc` says, with pictures where they tell more."""
    found = [Section("", summary(described, frame))]
    found += [*card(described)]
    if charts is None:
        charts = curves.charts_of(repository, [described.version.label])
    found += curves.sections(charts)
    found += network(described, frame)
    blocks = [*view.whole(described, frame.output, everything=True)]
    titles = {section.title: section for section in frame.sections(blocks)}
    if "hyperparameters" in titles:
        beside = f'<div class="side">{found[0].html()}{titles["hyperparameters"].html()}</div>'
        found[0] = Section("", Html(beside))
    found += [
        titles[name] for name in ("also logged", "evaluations", "checkpoints") if name in titles
    ]
    found += tensors(described, frame)
    found += [titles[name] for name in ("files", "storage") if name in titles]
    found += around(repository, described, frame)
    found += environment(described, frame)
    return found


def write(
    path: Path,
    repository: Repository,
    described: Description,
    part: str,
    now: datetime.datetime,
    command: str,
) -> None:
    """A report of a version or of one part, as `desc` has them; or its network as a picture."""
    frame = Frame(now)
    if path.suffix.lower() != ".html":
        _write_picture(path, described)
        return
    if part == "network":
        found = network(described, frame)
    elif part in ("stats", "tensor"):
        found = statistics(described, frame)
    elif part:
        found = frame.sections(view.blocks(described, frame.output, part, everything=True), part)
    else:
        found = sections(repository, described, frame)
    write_report(path, described.label, found, about=described.version.message, command=command)


def _write_picture(path: Path, described: Description) -> None:
    if described.network is None:
        raise UsageError(f"{described.version.label} has no network")
    drawing = network_picture.sketch(described.network, described.tensors)
    title = f"network of {described.label}"
    with user_files.replacing(path) as out:
        if path.suffix.lower() == ".svg":
            out.write(network_picture.file(drawing, title, page.style()).encode())
        else:
            raster.write_network(drawing, title, out)


def summary(described: Description, frame: Frame) -> Html:
    """The header of `desc`, and what the model comes to."""
    fields = dict(view.header(described, frame.output).values)
    sums = described.summary
    if sums is not None:
        fields["layers"] = Count(sums.layers)
        if sums.parameters is not None:
            fields["parameters"] = Count(sums.parameters)
        if sums.flops is not None:
            fields["FLOPs/example"] = Count(sums.flops)
    return frame.html(Fields(fields))


def metrics(described: Description, frame: Frame) -> Html:
    """Last, smallest and largest values."""
    return frame.table(view.metrics_table(described, frame.output), caption="metrics")


def card(described: Description) -> list[Section]:
    """The text of the version's CARD.md."""
    words = described.own.text
    return [Section("card", Html(f"<pre>{text(words)}</pre>"))] if words else []


def network(described: Description, frame: Frame, *, fold: bool = True) -> list[Section]:
    """The drawing of the network, and its layers as a table."""
    if described.network is None:
        return []
    drawn = network_picture.picture(
        described.network, described.tensors, f"network of {described.label}", fold=fold
    )
    blocks = [*view.layers(described, frame.output)]
    tables = [block for block in blocks if isinstance(block, Table)]
    layers = ""
    for table in tables:
        plain = without(table, "tensors")
        if same_names(plain, "layer", "alias"):
            plain = without(plain, "alias")
        layers = (
            f"<details><summary>{len(plain.rows):,} layers as a table</summary>"
            f"{frame.table(plain, caption='layers')}</details>"
        )
    return [Section("network", Html(drawn + layers))]


def tensors(described: Description, frame: Frame) -> list[Section]:
    """A row for each tensor of the model; a bar for what it takes in packs."""
    if not described.matrices:
        return []
    table = view.tensors_table(described, everything=True)
    place = next((n for n, c in enumerate(table.columns) if c.title == "stored"), None)
    if place is not None and all(row[place] is None for row in table.rows):
        table = without(table, "stored")  # the weights are on a remote
    largest = sorted(
        ((described.stored_bytes(m) or 0, m) for m in described.matrices if not m.tied),
        key=lambda pair: -pair[0],
    )[:12]
    bars = [(m.name, float(size), human_bytes(size)) for size, m in largest if size]
    drawn = plots.bars("largest tensors in packs", bars) if len(bars) > 1 else Html("")
    heading = frame.html(Heading("largest in packs")) if drawn else Html("")
    return [Section("tensors", Html(frame.table(table, caption="tensors") + heading + drawn))]


def statistics(
    described: Description, frame: Frame, norms: Mapping[str, Sequence[float]] | None = None
) -> list[Section]:
    """`desc --stats`: statistics of the tensors, each with its histogram; `norms` over the
    checkpoints as small curves."""
    table = view.statistics_table(described)
    drawn = []
    for matrix in described.matrices:
        figures = described.statistics.get(matrix.name)
        if matrix.name not in described.statistics and matrix.name not in described.bounds:
            continue
        histogram = None if figures is None else figures.histogram
        drawn.append(
            Html("")
            if histogram is None
            else plots.histogram(f"values of {matrix.name}", histogram.edges(), histogram.counts)
        )
    if len(drawn) == len(table.rows):
        table = with_column(table, "values", drawn)
    if norms:
        names = [str(row[0]) for row in table.rows]
        small = [plots.sparkline(norms.get(name, ()), f"L2 of {name}") for name in names]
        table = with_column(table, "L2 over checkpoints", small)
    return [Section("statistics", frame.table(table, caption="statistics"))] if drawn else []


def around(repository: Repository, described: Description, frame: Frame) -> list[Section]:
    """The versions around this one: what it comes from, and what comes from it."""
    entries, _ = history.log(repository, None, everything=True)
    place = next(
        (n for n, entry in enumerate(entries) if entry.version.id == described.version.id), None
    )
    if place is None or len(entries) < 2:
        return []
    near = _related(entries, described.version.id)
    some = [entry for entry in entries if entry.version.id in near]
    nodes = [(e.version.id, [p.id for p in e.parents if p.id in near]) for e in some]
    rows = lineage.rows(nodes)
    width = max(row.lane + 1 for row in rows)
    cells = []
    for row, entry in zip(rows, some, strict=True):
        own = entry.version.id == described.version.id
        name: object = entry.version.label
        address = (
            None if frame.links is None or own else frame.links("version", entry.version.label)
        )
        shown = (
            f"<strong>{text(name)}</strong>"
            if address is None and own
            else text(name)
            if address is None
            else f'<a href="{text(address)}">{text(name)}</a>'
        )
        message = entry.version.message.partition("\n")[0]
        cells.append(
            f"<tr><td>{lineage.cell(row, width)}</td><td>{shown}</td>"
            f'<td class="long">{text(message)}</td></tr>'
        )
    head = '<thead><tr><th scope="col">from</th><th scope="col">version</th>'
    head += '<th scope="col">message</th></tr></thead>'
    body = f'<table class="log">{head}<tbody>{"".join(cells)}</tbody></table>'
    return [Section("lineage", scrolling("lineage", body))]


def _related(entries: Sequence[history.Entry], chosen: str) -> set[str]:
    """Ancestors and descendants, the nearest first, up to a few."""
    parents = {entry.version.id: [p.id for p in entry.parents] for entry in entries}
    children: dict[str, list[str]] = {}
    for name, bases in parents.items():
        for base in bases:
            children.setdefault(base, []).append(name)
    found = {chosen}
    for links in (parents, children):
        ends, here = [chosen], 0
        while ends and here < AROUND:
            ends = [n for e in ends for n in links.get(e, []) if n in parents and n not in found]
            ends = ends[: AROUND - here]
            found.update(ends)
            here += len(ends)
    return found


def environment(described: Description, frame: Frame) -> list[Section]:
    """Where it was trained: packages, machine, the state of git."""
    details = described.manifest.environment
    if not details:
        return []
    rows: dict[str, Cell] = {}
    for key, value in sorted(details.items()):
        if isinstance(value, dict):
            rows |= {f"{key} {name}": str(item) for name, item in sorted(value.items())}
        else:
            rows[key] = str(value)
    return [Section("environment", frame.html(Fields(rows)), folded=True)]
