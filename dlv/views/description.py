"""How `desc` lays a version out: its sections, one matrix, activations; text and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dlv.dtypes import tensor_bytes
from dlv.network import json_form
from dlv.network.drawing import draw, operation_text
from dlv.network.graph import Network
from dlv.network.summary import Row
from dlv.terminal.output import Block, Fields, Heading, Line, Output, Verbatim
from dlv.terminal.table import Bytes, Cell, Column, Count, Id, Items, Number, Table, Text, Time
from dlv.versions.describe import Description
from dlv.views.values import (
    bounded_statistics,
    count_cell,
    number_cell,
    percent,
    planes_read,
    setting,
    shape,
)
from dlv.weights.inventory import Matrix

if TYPE_CHECKING:
    from dlv.evaluation.activations import Activations, Figures
    from dlv.weights.reading.interval_statistics import HistogramBounds, StatisticsBounds
    from dlv.weights.statistics import Histogram, Statistics


def whole(
    found: Description, output: Output, *, drawn: bool = False, everything: bool = False
) -> Iterator[Block]:
    """Section by section; `everything`: the optimizer's matrices one by one, too."""
    yield header(found, output)
    yield from _message_rest(found, output)
    yield from _section("network", _network(found, output, drawn=drawn))
    rows: list[list[Cell]]
    rows = [[key, setting(value)] for key, value in found.manifest.hyperparameters.items()]
    yield from _section("hyperparameters", [Table([Column("key", fixed=True), "value"], rows)])
    yield from _section("metrics", [_metrics(found, output)])
    yield from _section("also logged", _logged(found))
    yield from _section("evaluations", [_evaluations(found)])
    yield from _section("snapshots", [_snapshots(found)])
    shown = [m for m in found.matrices if everything or m.role != "optimizer"]
    yield from _section("matrices", [_matrices(found, shown), *_optimizer(found, shown)])
    rows = [[file.path, file.role, Bytes(file.bytes)] for file in found.manifest.files]
    yield from _section("files", [Table([Column("path", least=20), "role", "size"], rows)])
    yield from _storage(found)


def _section(title: str, blocks: list[Block] | Iterator[Block]) -> Iterator[Block]:
    """A heading and what stands under it; nothing where that is empty."""
    filled = [block for block in blocks if not (isinstance(block, Table) and not block.rows)]
    if filled:
        yield from ("", Heading(title), *filled)


def header(found: Description, output: Output) -> Fields:
    version = found.version
    git = found.git or {}
    head = git.get("head")
    dirty = {True: "with changes", "unknown": "state unknown"}.get(git.get("dirty", False), "")
    message = version.message.split("\n")[0] if output.terminal else version.message
    fields: dict[str, Cell] = {
        "version": Text(found.label, "bold"),
        "id": Id(version.id),
        "created": Time(version.created),
        "author": version.author,
        "message": message,
    }
    if found.parents:
        fields["parents"] = Items(
            [
                (parent.label or Id(parent.id))
                if parent.kind == "commit"
                else f"{parent.label or parent.id[:12]} ({parent.kind})"
                for parent in found.parents
            ]
        )
    if version.tags:
        fields["tags"] = Items([Text(tag, "green") for tag in version.tags])
    if version.framework:
        fields["framework"] = version.framework
    if version.scheme:
        fields["lossy"] = version.scheme
    if head or dirty:
        fields["git head"] = Items(
            [*([Id(str(head))] if head else []), *([dirty] if dirty else [])]
        )
    if found.mlflow:
        run, where = found.mlflow.get("run"), found.mlflow.get("experiment")
        fields["mlflow run"] = f"{run} of {where}"
    return Fields(fields)


def _message_rest(found: Description, output: Output) -> Iterator[Block]:
    _, _, rest = found.version.message.partition("\n")
    if rest.strip() and output.terminal:
        yield from ("", rest.strip("\n"))


def _network(found: Description, output: Output, *, drawn: bool) -> Iterator[Block]:
    network, sums = found.network, found.summary
    held = sum(_in_memory(found).values())
    if network is None:
        if not found.matrices:
            yield "no network and no weights are stored with this version"
            return
        yield "no network is stored with this version, only its matrices"
        elements = sum(m.elements for m in found.matrices if not m.tied and m.role == "weight")
        yield Fields({"parameters": Count(elements), "weights": Bytes(held)})
        return
    if sums is None:
        yield "the network has a cycle: its shapes and costs are not known"
        return
    if drawn:
        plain = not output.can_print("│●○╮╯├×…→")
        width = output.width if output.terminal else None
        text = draw(network, tensors=found.tensors, width=width, ascii_only=plain)
        yield Verbatim(text.split("\n\n")[0].rstrip("\n").split("\n"))
    else:
        yield _nodes(network, sums.rows, output)
    unknown = Text("not known", "dim")
    fields: dict[str, Cell] = {
        "layers": Count(sums.layers),
        "depth": Count(sums.depth),
        "parameters": unknown if sums.parameters is None else Count(sums.parameters),
    }
    if sums.buffers:
        fields["buffers"] = Count(sums.buffers)
    if found.matrices:
        fields["weights"] = Bytes(held)
    fields["activations/example"] = (
        unknown if sums.activation_bytes is None else Bytes(sums.activation_bytes)
    )
    fields["FLOPs/example"] = unknown if sums.flops is None else Count(sums.flops)
    yield ""
    yield Fields(fields)


def _in_memory(found: Description) -> dict[str, int]:
    """Bytes of the model's tensors, tied ones once."""
    return {
        m.tied or m.name: tensor_bytes(m.dtype, m.shape)
        for m in found.matrices
        if m.role in ("weight", "buffer")
    }


def _nodes(network: Network, rows: tuple[Row, ...], output: Output) -> Table:
    nodes = {node.name: node for node in network.nodes}
    columns: list[Column | str] = [
        Column("node", least=12),
        Column("alias", fixed=True),
        "operation",
        "output",
    ]
    cells: list[list[Cell]] = [
        [
            row.name,
            Text(row.alias, "dim") if row.alias else None,
            operation_text(nodes[row.name]),
            shape(row.out_shape),
            _count(row.parameters, row.parameters == 0),
        ]
        for row in rows
    ]
    return _without_aliases(Table([*columns, "parameters"], cells), output)


def _count(value: int | None, nothing: bool = False) -> Cell:
    return None if value is None or nothing else Count(value)


def layers(found: Description, output: Output) -> Iterator[Block]:
    """`--layers`: each node with what it reads and what it costs an example."""
    if found.network is None or found.summary is None:
        without = "has no network" if found.network is None else "has a network with a cycle"
        yield f"{found.version.label} {without}"
        return
    nodes = {node.name: node for node in found.network.nodes}
    rows: list[list[Cell]] = [
        [
            row.name,
            Text(row.alias, "dim") if row.alias else None,
            operation_text(nodes[row.name]),
            Items([f"{name}:{port}" if port else name for name, port in nodes[row.name].inputs]),
            shape(row.out_shape),
            _count(row.parameters, row.parameters == 0),
            _count(row.flops, row.flops == 0),
            Bytes(row.activation_bytes) if row.activation_bytes else None,
        ]
        for row in found.summary.rows
    ]
    columns: list[Column | str] = [Column("node", least=12), Column("alias", fixed=True)]
    columns += [Column("operation", least=10), "inputs", "output", Column("params", fixed=True)]
    columns += [Column("FLOPs", fixed=True), Column("memory", fixed=True)]
    if not output.terminal:  # there is room
        columns.append("tensors")
        for line, row in zip(rows, found.summary.rows, strict=True):
            line.append(Items(list(nodes[row.name].params.values())))
    yield _without_aliases(Table(columns, rows), output)


def _without_aliases(table: Table, output: Output) -> Table:
    """On a terminal the aliases are left out where they are the names."""
    aliases = [(row[0], row[1]) for row in table.rows]
    told = any(isinstance(alias, Text) and alias.value != name for name, alias in aliases)
    if told or not output.terminal:
        return table
    columns = [column for column in table.columns if column.title != "alias"]
    return Table(columns, [(row[0], *row[2:]) for row in table.rows])


def _metrics(found: Description, output: Output) -> Table:
    columns: list[Column | str] = [
        Column("metric", least=12),
        "last",
        "step",
        "min",
        "at",
        "max",
        Column("at", "at_max"),
    ]
    rows: list[list[Cell]] = [
        [
            item.name,
            *(number_cell(item.last), item.last_step),
            *(number_cell(item.min), item.min_step),
            *(number_cell(item.max), item.max_step),
        ]
        for item in found.metrics
    ]
    if output.terminal and found.curves:
        columns = [*columns, Column("curve", fixed=True)]
        for row, item in zip(rows, found.metrics, strict=True):
            row.append(output.sparkline(found.curves.get(item.name, ()), 16))
    return Table(columns, rows)


def _logged(found: Description) -> list[Block]:
    rows: list[list[Cell]] = [
        [item.name, item.plugin, Text("unreadable", "red") if item.points is None else item.points]
        for item in found.logged
    ]
    return [Table([Column("series", least=12), "kind", "points"], rows)]


def _evaluations(found: Description) -> Table:
    rows: list[list[Cell]] = []
    for created, told in found.evaluations:
        data, figures = told.get("data"), told["metrics"].items()
        rows.append(
            [
                Time(created),
                told["step"],
                data.get("name") if isinstance(data, dict) else None,
                told.get("rows"),
                Items([f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in figures]),
                told.get("mode"),
            ]
        )
    first = [Column("age", key="created"), Column("step"), Column("data", least=12), Column("rows")]
    return Table([*first, Column("metrics", least=16), "mode"], rows)


def _snapshots(found: Description) -> Table:
    rows: list[list[Cell]] = [
        [
            line.step,
            Items([*(["own"] if line.own else []), *(["removed"] if line.removed else [])]),
            line.matrices,
            Bytes(line.raw),
            Items(list(line.paths)),
        ]
        for line in found.snapshots
    ]
    return Table(["step", "state", "matrices", "size", Column("files", least=20)], rows)


def _optimizer(found: Description, shown: list[Matrix]) -> list[Block]:
    """What is left out of the table, in one line."""
    seen = {matrix.name for matrix in shown}
    hidden = [matrix for matrix in found.matrices if matrix.name not in seen]
    if not hidden:
        return []
    size = sum(matrix.nbytes or 0 for matrix in hidden if not matrix.tied)
    return [Line(f"and {len(hidden)} of the optimizer (--all)", Bytes(size))]


def _matrices(found: Description, shown: list[Matrix]) -> Table:
    columns = [Column("matrix", least=20), Column("dtype", fixed=True)]
    rows = [[matrix.name, *_matrix_cells(found, matrix).values()] for matrix in shown]
    return Table([*columns, "shape", "role", "size", "stored"], rows)


def _matrix_cells(found: Description, matrix: Matrix) -> dict[str, Cell]:
    stored = found.stored_bytes(matrix)
    return {
        "dtype": matrix.dtype,
        "shape": shape(matrix.shape),
        "role": f"tied to {matrix.tied}" if matrix.tied else matrix.role,
        "size": None if matrix.nbytes is None else Bytes(matrix.nbytes),
        "stored": None if stored is None else Bytes(stored),
    }


def _storage(found: Description) -> Iterator[Block]:
    storage = found.storage
    if not storage.matrices:
        return
    yield from ("", Heading("storage"))
    yield Fields(
        {
            "tensors": Bytes(storage.raw),
            "stored": Bytes(storage.stored),
            "ratio": None if storage.ratio is None else Number(storage.ratio, 3),
            # These are other versions', so they are no part of the ratio.
            **({"bases besides": Bytes(storage.bases)} if storage.bases else {}),
            "different matrices": Count(storage.matrices),
        }
    )


# Figures of matrices: all of them, or one with its histogram


_BAR = 32  # columns of the longest bar
_FIGURES = ("min", "max", "mean", "std", "L2", "zeros")


def statistics_table(found: Description) -> Table:
    """`--stats`: one line a matrix."""
    rows: list[list[Cell]] = []
    for matrix in found.matrices:
        name = matrix.name
        if name in found.bounds:
            cells = bounded_statistics(found.bounds[name])
            rows.append([name, *(cells[title] for title in (*_FIGURES, "NaN", "infinite"))])
            continue
        if name not in found.statistics:
            continue
        figures = found.statistics[name]
        if figures is None:
            rows.append([name, *([None] * 8)])
        else:
            rows.append(
                [
                    name,
                    *map(number_cell, (figures.min, figures.max, figures.mean, figures.std)),
                    number_cell(figures.l2),
                    *map(Count, (figures.zeros, figures.nan, figures.infinite)),
                ]
            )
    # The end of a range must not be cut away.
    columns = [Column(title, fixed=bool(found.bounds)) for title in (*_FIGURES, "NaN", "inf")]
    return Table([Column("matrix", least=16), *columns], rows)


def matrix_blocks(found: Description, output: Output) -> Iterator[Block]:
    """`--matrix`: one of them, with a histogram."""
    for held in found.matrices:
        if held.name in found.statistics or held.name in found.bounds:
            fields: dict[str, Cell] = {
                "matrix": Text(held.name, "bold"),
                "version": found.label,
                "id": Id(held.hash),
                **_matrix_cells(found, held),
            }
            if held.name in found.readings:
                fields["read"] = planes_read(found.readings[held.name])
            if held.name in found.bounds:
                known = found.bounds[held.name]
                yield Fields(fields | bounded_statistics(known))
                yield ""
                yield _histogram(known.histogram, output)
                continue
            figures = found.statistics[held.name]
            if figures is None:
                yield Fields(fields)
                yield f"the numbers of {held.dtype} are not known to dlv"
                continue
            yield Fields(fields | _statistics_cells(figures))
            if figures.histogram is not None:
                yield ""
                yield _histogram(figures.histogram, output)


def _statistics_cells(found: Statistics) -> dict[str, Cell]:
    names = {"min": found.min, "max": found.max, "mean": found.mean, "std": found.std}
    cells: dict[str, Cell] = {
        "elements": Count(found.elements),
        **{name: number_cell(value) for name, value in names.items()},
        "L2": number_cell(found.l2),
        "zeros": Count(found.zeros),
    }
    share = percent(found.zeros, found.elements)
    if found.zeros and share is not None:
        cells["zeros"] = Items([Count(found.zeros), f"{share.value:.{share.digits}g} %"])
    return cells | {"NaN": Count(found.nan), "infinite": Count(found.infinite)}


def _histogram(found: Histogram | HistogramBounds, output: Output) -> Table:
    """Bars; of what may or may not lie in a bin in a lighter shade."""
    from dlv.weights.reading.interval_statistics import Counts

    edges = found.edges()
    counts = [one if isinstance(one, Counts) else Counts(one, one) for one in found.counts]
    most = max(count.high for count in counts)
    mark, maybe = ("█", "░") if output.can_print("█░") else ("#", "-")
    rows: list[list[Cell]] = []
    for i, count in enumerate(counts):
        high = edges[i + 1] if len(counts) > 1 else found.high
        rows.append([Number(edges[i]), Number(high), count_cell(count)])
        if output.terminal:
            sure, length = (
                max(1, round(_BAR * n / most)) if n else 0 for n in (count.low, count.high)
            )
            rows[-1].append(Text(mark * sure + maybe * (length - sure), "cyan"))
    columns = [Column("from"), Column("to"), Column("count")]
    return Table([*columns, *([Column("", "bar", fixed=True)] if output.terminal else [])], rows)


# What nodes compute on data


def activations_document(found: Activations) -> dict[str, Any]:
    """What is added to the document of a version."""
    return {
        "activations": {
            "data": found.data,
            "rows": found.rows,
            "bytes_read": found.bytes_read,
            "written": None if found.written is None else str(found.written),
            "nodes": [_activation_record(each) for each in found.nodes],
        }
    }


def activations_blocks(found: Activations) -> list[Block]:
    """A row for each node."""
    bounded = any(each.radius is not None for each in found.nodes)
    columns = ["node", "shape", "min", "max", "mean", "std", "% zero"]
    columns += ["radius, mean", "radius, most"] if bounded else []
    rows: list[list[Cell]] = []
    for each in found.nodes:
        row: list[Cell] = [each.node, shape(each.shape), *_figures(each)]
        row.append(percent(each.zeros, each.count))
        row += [Number(value) for value in each.radius or ()] if bounded else []
        rows.append(row)
    read = Line(found.data, Count(found.rows), "rows", Bytes(found.bytes_read), "of weights read")
    return [Table(columns, rows), "", read]


def _figures(found: Figures) -> list[Cell]:
    low, high = (found.low, found.high) if found.count else (None, None)
    return [number_cell(value) for value in (low, high, found.mean, found.std)]


def _activation_record(found: Figures) -> dict[str, Any]:
    low, high, mean, std = _figures(found)
    return {
        "node": found.node,
        "shape": list(found.shape),
        "min": low,
        "max": high,
        "mean": mean,
        "std": std,
        "elements": found.count + found.not_finite,
        "zeros": found.zeros,
        "not_finite": found.not_finite,
        "radius": None
        if found.radius is None
        else {"mean": Number(found.radius[0]), "most": Number(found.radius[1])},
    }


# JSON


def version_document(found: Description) -> dict[str, Any]:
    """The JSON of a whole version."""
    network, origin = found.network, found.manifest.network
    return {
        "version": version_record(found),
        "network": None
        if network is None
        else json_form.write(network) | {"origin": origin and origin.origin},
        "summary": None if found.summary is None else asdict(found.summary),
        "hyperparameters": found.manifest.hyperparameters,
        "metrics": [
            {"name": item.name, **{k: v for k, v in asdict(item).items() if k != "hash"}}
            for item in found.metrics
        ],
        "logged": [
            {"name": item.name, "kind": item.plugin, "points": item.points} for item in found.logged
        ],
        "evaluations": [{"created": at, **told} for at, told in found.evaluations],
        "snapshots": [asdict(line) for line in found.snapshots],
        "matrices": [_matrix_record(found, matrix) for matrix in found.matrices],
        "files": [
            {"path": f.path, "role": f.role, "mode": f.mode, "bytes": f.bytes, "hash": f.blake3}
            for f in found.manifest.files
        ],
        "storage": {**asdict(found.storage), "ratio": found.storage.ratio},
    }


def matrix_document(found: Description) -> dict[str, Any]:
    """The JSON of those matrices alone whose figures were asked for."""
    asked = {*found.statistics, *found.bounds}
    wanted = [matrix for matrix in found.matrices if matrix.name in asked]
    return {
        "version": version_record(found),
        "matrices": [_matrix_record(found, matrix) for matrix in wanted],
    }


def version_record(found: Description) -> dict[str, Any]:
    version = found.version
    return {
        "id": version.id,
        "name": version.name,
        "number": version.number,
        "step": None if found.snapshot is None else found.snapshot.step,
        "created": version.created,
        "author": version.author,
        "message": version.message,
        "state": version.state,
        "tags": list(version.tags),
        "parents": [asdict(parent) for parent in found.parents],
        "framework": version.framework,
        "scheme": version.scheme,
        "git": found.git,
        "mlflow": found.mlflow,
    }


def _matrix_record(found: Description, matrix: Matrix) -> dict[str, Any]:
    record: dict[str, Any] = {
        **asdict(matrix),
        "elements": matrix.elements,
        "bytes": matrix.nbytes,
        "stored": found.stored_bytes(matrix),
    }
    if matrix.name in found.statistics:
        figures = found.statistics[matrix.name]
        record["statistics"] = None if figures is None else asdict(figures)
    if matrix.name in found.readings:
        record["approximation"] = {
            **found.readings[matrix.name].as_json(),
            "bounds": _bounds_record(found.bounds.get(matrix.name)),
        }
    return record


def _bounds_record(found: StatisticsBounds | None) -> dict[str, Any] | None:
    """Intervals as [low, high]; null where `statistics` are exact."""
    if found is None:
        return None
    intervals = {
        name: [held.low, held.high]
        for name in ("zeros", "min", "max", "mean", "std", "l2")
        for held in [getattr(found, name)]
    }
    histogram = found.histogram
    counts = [[count.low, count.high] for count in histogram.counts]
    bins = {"low": histogram.low, "high": histogram.high, "counts": counts}
    return {"elements": found.elements, **intervals, "histogram": bins}
