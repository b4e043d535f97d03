"""How `desc` lays a version out: its sections, one matrix, activations; text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dlv.dtypes import tensor_bytes
from dlv.network import json_form
from dlv.network.drawing import draw, operation_text
from dlv.network.graph import Network
from dlv.network.summary import Row
from dlv.terminal.output import Block, Fields, Heading, Line, Output, Verbatim
from dlv.terminal.table import Bytes, Cell, Column, Count, Id, Items, Number, Table, Text, Time
from dlv.versions.describe import Description, SnapshotLine, Storage
from dlv.views.values import (
    bounded_statistics,
    count_cell,
    number_cell,
    percent,
    planes_read,
    reading_lines,
    setting,
    shape,
)
from dlv.weights.snapshots import Matrix

if TYPE_CHECKING:
    from dlv.evaluation.activations import Activations, Figures
    from dlv.metadata.metrics import Summary as Metric
    from dlv.weights.reading.interval_statistics import HistogramBounds, StatisticsBounds
    from dlv.weights.statistics import Histogram, Statistics


MOST_ROWS, SHOWN_ROWS = 12, 10  # of a section on a terminal


def blocks(description: Description, output: Output, part: str, *, everything: bool) -> list[Block]:
    """One part: tensor, network, layers, tensors or stats; all of it without one."""
    if part == "tensor":
        return [*matrix_blocks(description, output)]
    if part == "network":
        return [*network_blocks(description, output, drawn=True)]
    if part == "layers":
        return [*layers(description, output)]
    if part == "tensors":
        return [tensors_table(description, everything=everything)]
    if part == "stats":
        read = reading_lines(list(description.readings.values()))
        return [statistics_table(description), *read]
    return [*whole(description, output, everything=everything)]


def whole(description: Description, output: Output, *, everything: bool = False) -> Iterator[Block]:
    """Yield section by section, long ones folded on a terminal.

    `everything` includes the tensors of the optimizer.
    """
    ref = description.label
    yield header(description, output)
    yield from _message_rest(description, output)
    if description.own.text:
        yield from ("", Heading("card"), Verbatim(description.own.text.split("\n")))
    network = [*network_blocks(description, output, drawn=False)]
    yield from _section("network", _folded(network, f"dlv desc {ref} --layers", output))
    yield from _section("components", [_components(description)])
    yield from _section("mlflow", _mlflow(description))
    rows: list[list[Cell]]
    rows = [[key, setting(value)] for key, value in description.manifest.hyperparameters.items()]
    yield from _section("hyperparameters", [Table([Column("key", fixed=True), "value"], rows)])
    yield from _section("metrics", [metrics_table(description, output)])
    yield from _section("also logged", _logged(description))
    yield from _section("evaluations", [_evaluations(description)])
    yield from _section("checkpoints", [_snapshots(description)])
    shown = [m for m in description.matrices if everything or m.role != "optimizer"]
    tensors = [_matrices(description, shown), *_optimizer(description, shown)]
    folded = tensors if everything else _folded(tensors, f"dlv desc {ref} --tensors", output)
    yield from _section("tensors", folded)
    rows = [[file.path, file.role, Bytes(file.bytes)] for file in description.manifest.files]
    yield from _section("files", [Table([Column("path", least=20), "role", "size"], rows)])
    yield from _storage(description)


def _folded(blocks: Sequence[Block], command: str, output: Output) -> list[Block]:
    """Cut tables that would fill the screen, and name the command that shows all."""
    found: list[Block] = []
    for block in blocks:
        if output.terminal and isinstance(block, Table) and len(block.rows) > MOST_ROWS:
            found.append(Table(block.columns, block.rows[:SHOWN_ROWS]))
            found.append(f"... {len(block.rows) - SHOWN_ROWS} more: {command}")
        else:
            found.append(block)
    return found


def tensors_table(description: Description, *, everything: bool) -> Table:
    """`--tensors`: every tensor, with its size and what it takes in packs."""
    return _matrices(
        description, [m for m in description.matrices if everything or m.role != "optimizer"]
    )


def _section(title: str, blocks: list[Block] | Iterator[Block]) -> Iterator[Block]:
    """A heading and its blocks; nothing if they are empty."""
    filled = [block for block in blocks if not (isinstance(block, Table) and not block.rows)]
    if filled:
        yield from ("", Heading(title), *filled)


def header(description: Description, output: Output) -> Fields:
    version = description.version
    git = description.git or {}
    head = git.get("head")
    dirty = {True: "with changes", "unknown": "state unknown"}.get(git.get("dirty", False), "")
    message = version.message.split("\n")[0] if output.terminal else version.message
    fields: dict[str, Cell] = {
        "version": Text(description.label, "bold"),
        "id": Id(version.id),
        "created": Time(version.created),
        "author": version.author,
        "message": message,
    }
    if description.parents:
        fields["parents"] = Items(
            [
                (parent.label or Id(parent.id))
                if parent.kind == "commit"
                else f"{parent.label or parent.id[:12]} ({parent.kind})"
                for parent in description.parents
            ]
        )
    own = description.own
    if own.task:
        fields["task"] = own.task
    if own.license:
        fields["license"] = own.license
    if version.tags or own.tags:
        tags = [Text(tag, "green") for tag in version.tags]
        fields["tags"] = Items([*tags, *(t for t in own.tags if t not in version.tags)])
    if version.framework:
        fields["framework"] = version.framework
    if version.scheme:
        fields["quantized"] = version.scheme
    if head or dirty:
        fields["git head"] = Items(
            [*([Id(str(head))] if head else []), *([dirty] if dirty else [])]
        )
    if description.mlflow:
        run, where = description.mlflow.get("run"), description.mlflow.get("experiment")
        fields["mlflow run"] = f"{run} of {where}"
    return Fields(fields)


def _message_rest(description: Description, output: Output) -> Iterator[Block]:
    _, _, rest = description.version.message.partition("\n")
    if rest.strip() and output.terminal:
        yield from ("", rest.strip("\n"))


def network_blocks(description: Description, output: Output, *, drawn: bool) -> Iterator[Block]:
    """The layers, `drawn` as a graph or as a table, and their sums."""
    network, sums = description.network, description.summary
    held = sum(_in_memory(description).values())
    if network is None:
        if not description.matrices:
            yield "no network and no weights"
            return
        yield "no network, only weights"
        yield Fields({"parameters": _count(description.parameters), "weights": Bytes(held)})
        return
    if sums is None:
        yield "the network has a cycle, so shapes and costs are unknown"
        return
    if drawn:
        plain = not output.can_print("│●○╮╯├×…→")
        width = output.width if output.terminal else None
        text = draw(network, tensors=description.tensors, width=width, ascii_only=plain)
        yield Verbatim(text.split("\n\n")[0].rstrip("\n").split("\n"))
    else:
        yield _nodes(network, sums.rows, output)
    unknown = Text("unknown", "dim")
    fields: dict[str, Cell] = {
        "layers": Count(sums.layers),
        "depth": Count(sums.depth),
        "parameters": unknown if sums.parameters is None else Count(sums.parameters),
    }
    if sums.buffers:
        fields["buffers"] = Count(sums.buffers)
    if description.matrices:
        fields["weights"] = Bytes(held)
    fields["activations/example"] = (
        unknown if sums.activation_bytes is None else Bytes(sums.activation_bytes)
    )
    fields["FLOPs/example"] = unknown if sums.flops is None else Count(sums.flops)
    yield ""
    yield Fields(fields)


def _in_memory(description: Description) -> dict[str, int]:
    """Bytes of the model's tensors, tied ones once."""
    return {
        m.tied or m.name: tensor_bytes(m.dtype, m.shape)
        for m in description.matrices
        if m.role in ("weight", "buffer")
    }


def _nodes(network: Network, rows: tuple[Row, ...], output: Output) -> Table:
    nodes = {node.name: node for node in network.nodes}
    columns: list[Column | str] = [
        Column("layer", least=12),
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


def layers(description: Description, output: Output) -> Iterator[Block]:
    """`--layers`: each node with what it reads and what it costs an example."""
    if description.network is None or description.summary is None:
        without = "has no network" if description.network is None else "has a network with a cycle"
        yield f"{description.version.label} {without}"
        return
    nodes = {node.name: node for node in description.network.nodes}
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
        for row in description.summary.rows
    ]
    columns: list[Column | str] = [Column("layer", least=12), Column("alias", fixed=True)]
    columns += [Column("operation", least=10), "inputs", "output", Column("params", fixed=True)]
    columns += [Column("FLOPs", fixed=True), Column("memory", fixed=True)]
    if not output.terminal:  # there is room
        columns.append("tensors")
        for line, row in zip(rows, description.summary.rows, strict=True):
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


def metrics_table(description: Description, output: Output) -> Table:
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
        for item in description.metrics
    ]
    if output.terminal and description.curves:
        columns = [*columns, Column("curve", fixed=True)]
        for row, item in zip(rows, description.metrics, strict=True):
            row.append(output.sparkline(description.curves.get(item.name, ()), 16))
    return Table(columns, rows)


def _logged(description: Description) -> list[Block]:
    rows: list[list[Cell]] = [
        [item.name, item.plugin, Text("unreadable", "red") if item.points is None else item.points]
        for item in description.logged
    ]
    return [Table([Column("metric", least=12), "kind", "points"], rows)]


def _evaluations(description: Description) -> Table:
    rows: list[list[Cell]] = []
    for saved in description.evaluations:
        told, figures = saved.data, saved.data["metrics"].items()
        rows.append(
            [
                Time(saved.created),
                saved.step,
                saved.data_set,
                told.get("rows"),
                Items([f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in figures]),
                told.get("mode"),
            ]
        )
    first = [
        Column("age", key="created"),
        Column("step"),
        Column("data", least=12),
        Column("examples"),
    ]
    return Table([*first, Column("metrics", least=16), "mode"], rows)


def _mlflow(description: Description) -> list[Block]:
    """What MLflow knew of the run beside its parameters and metrics."""
    run = description.mlflow
    if run is None:
        return []
    moments = {name: Time(run[key]) for name, key in _MOMENTS if run.get(key)}
    fields: dict[str, Cell] = {"status": run.get("status") or None, **moments}
    for known in run.get("registered") or []:
        said = [known.get("status"), known.get("stage"), *known.get("aliases", [])]
        said += [f"{key}={value}" for key, value in (known.get("tags") or {}).items()]
        place = f"{known['name']} version {known['version']}"
        fields[f"registered {place}"] = Items([str(word) for word in said if word])
    tags = Table(
        [Column("tag", fixed=True), "value"],
        [[key, str(value)] for key, value in (run.get("tags") or {}).items()],
    )
    data = Table(
        [Column("data set", fixed=True), "digest", "context", "source"],
        [
            [known["name"], known["digest"], known["context"] or None, _source(known)]
            for known in run.get("datasets") or []
        ],
    )
    return [Fields({name: cell for name, cell in fields.items() if cell is not None}), tags, data]


_MOMENTS = (("started", "start"), ("ended", "end"))


def _source(data: dict[str, Any]) -> str:
    return f"{data['source_type']} {data['source'] or ''}".strip()


def _components(description: Description) -> Table:
    rows: list[list[Cell]] = [
        [part.name, part.kind, *map(_count_or_none, (part.tensors, part.parameters)), size]
        for part in description.components
        for size in [Bytes(part.bytes) if part.bytes else None]
    ]
    return Table([Column("component", fixed=True), "class", "tensors", "parameters", "size"], rows)


def _count_or_none(value: int) -> Cell:
    return _count(value, value == 0)


def _snapshots(description: Description) -> Table:
    rows: list[list[Cell]] = [
        [
            line.step,
            Items([*(["default"] if line.own else []), *(["removed"] if line.removed else [])]),
            line.matrices,
            Bytes(line.raw),
            Items(list(line.paths)),
        ]
        for line in description.snapshots
    ]
    return Table(["step", "state", "tensors", "size", Column("files", least=20)], rows)


def _optimizer(description: Description, shown: list[Matrix]) -> list[Block]:
    """What is left out of the table, in one line."""
    seen = {matrix.name for matrix in shown}
    hidden = [matrix for matrix in description.matrices if matrix.name not in seen]
    if not hidden:
        return []
    size = sum(matrix.nbytes or 0 for matrix in hidden if not matrix.tied)
    return [Line(f"and {len(hidden)} of the optimizer (--all)", Bytes(size))]


def _matrices(description: Description, shown: list[Matrix]) -> Table:
    columns = [Column("tensor", least=20), Column("dtype", fixed=True)]
    rows = [[matrix.name, *_matrix_cells(description, matrix).values()] for matrix in shown]
    return Table([*columns, "shape", "role", "size", "stored"], rows)


def _matrix_cells(description: Description, matrix: Matrix) -> dict[str, Cell]:
    stored = description.stored_bytes(matrix)
    return {
        "dtype": matrix.dtype,
        "shape": shape(matrix.shape),
        "role": f"tied to {matrix.tied}" if matrix.tied else matrix.role,
        "size": None if matrix.nbytes is None else Bytes(matrix.nbytes),
        "stored": None if stored is None else Bytes(stored),
    }


def _storage(description: Description) -> Iterator[Block]:
    storage = description.storage
    if not storage.matrices:
        return
    yield from ("", Heading("storage"))
    yield Fields(
        {
            "tensors": Bytes(storage.raw),
            "stored": Bytes(storage.stored),
            "ratio": None if storage.ratio is None else Number(storage.ratio, 3, "x"),
            # These are other versions', so they are no part of the ratio.
            **({"delta bases": Bytes(storage.bases)} if storage.bases else {}),
            "different tensors": Count(storage.matrices),
        }
    )


# Figures of matrices: all of them, or one with its histogram


_BAR = 32  # columns of the longest bar
_FIGURES = ("min", "max", "mean", "std", "L2", "zeros")


def statistics_table(description: Description) -> Table:
    """`--stats`: one line a matrix."""
    rows: list[list[Cell]] = []
    for matrix in description.matrices:
        name = matrix.name
        if name in description.bounds:
            cells = bounded_statistics(description.bounds[name])
            rows.append([name, *(cells[title] for title in (*_FIGURES, "NaN", "infinite"))])
            continue
        if name not in description.statistics:
            continue
        figures = description.statistics[name]
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
    columns = [Column(title, fixed=bool(description.bounds)) for title in (*_FIGURES, "NaN", "inf")]
    return Table([Column("tensor", least=16), *columns], rows)


def matrix_blocks(description: Description, output: Output) -> Iterator[Block]:
    """`--tensor`: one of them, with a histogram."""
    for held in description.matrices:
        if held.name in description.statistics or held.name in description.bounds:
            fields: dict[str, Cell] = {
                "tensor": Text(held.name, "bold"),
                "version": description.label,
                "id": Id(held.hash),
                **_matrix_cells(description, held),
            }
            if held.name in description.readings:
                fields["read"] = planes_read(description.readings[held.name])
            if held.name in description.bounds:
                known = description.bounds[held.name]
                yield Fields(fields | bounded_statistics(known))
                yield ""
                yield _histogram(known.histogram, output)
                continue
            figures = description.statistics[held.name]
            if figures is None:
                yield Fields(fields)
                yield f"the numbers of {held.dtype} are unknown to dlv"
                continue
            yield Fields(fields | _statistics_cells(figures))
            if figures.histogram is not None:
                yield ""
                yield _histogram(figures.histogram, output)


def _statistics_cells(statistics: Statistics) -> dict[str, Cell]:
    names = {
        "min": statistics.min,
        "max": statistics.max,
        "mean": statistics.mean,
        "std": statistics.std,
    }
    cells: dict[str, Cell] = {
        "elements": Count(statistics.elements),
        **{name: number_cell(value) for name, value in names.items()},
        "L2": number_cell(statistics.l2),
        "zeros": Count(statistics.zeros),
    }
    share = percent(statistics.zeros, statistics.elements)
    if statistics.zeros and share is not None:
        cells["zeros"] = Items([Count(statistics.zeros), f"{share.value:.{share.digits}g}%"])
    return cells | {"NaN": Count(statistics.nan), "infinite": Count(statistics.infinite)}


def _histogram(histogram: Histogram | HistogramBounds, output: Output) -> Table:
    """Bars; of what may or may not lie in a bin in a lighter shade."""
    from dlv.weights.reading.interval_statistics import Counts

    edges = histogram.edges()
    counts = [one if isinstance(one, Counts) else Counts(one, one) for one in histogram.counts]
    most = max(count.high for count in counts)
    mark, maybe = ("█", "░") if output.can_print("█░") else ("#", "-")
    rows: list[list[Cell]] = []
    for i, count in enumerate(counts):
        high = edges[i + 1] if len(counts) > 1 else histogram.high
        rows.append([Number(edges[i]), Number(high), count_cell(count)])
        if output.terminal:
            sure, length = (
                max(1, round(_BAR * n / most)) if n else 0 for n in (count.low, count.high)
            )
            rows[-1].append(Text(mark * sure + maybe * (length - sure), "cyan"))
    columns = [Column("from"), Column("to"), Column("count")]
    return Table([*columns, *([Column("", "bar", fixed=True)] if output.terminal else [])], rows)


# What nodes compute on data


def activations_document(activations: Activations) -> dict[str, Any]:
    """What is added to the document of a version."""
    return {
        "activations": {
            "data": activations.data,
            "examples": activations.rows,
            "bytes_read": activations.bytes_read,
            "written": None if activations.written is None else str(activations.written),
            "layers": [_activation_record(each) for each in activations.nodes],
        }
    }


def activations_blocks(activations: Activations) -> list[Block]:
    """A row for each node."""
    bounded = any(each.radius is not None for each in activations.nodes)
    columns = ["layer", "shape", "min", "max", "mean", "std", "% zero"]
    columns += ["radius, mean", "radius, most"] if bounded else []
    rows: list[list[Cell]] = []
    for each in activations.nodes:
        row: list[Cell] = [each.node, shape(each.shape), *_figures(each)]
        row.append(percent(each.zeros, each.count))
        row += [Number(value) for value in each.radius or ()] if bounded else []
        rows.append(row)
    read = Line(
        activations.data,
        Count(activations.rows),
        "rows",
        Bytes(activations.bytes_read),
        "of weights read",
    )
    return [Table(columns, rows), "", read]


def _figures(figures: Figures) -> list[Cell]:
    low, high = (figures.low, figures.high) if figures.count else (None, None)
    return [number_cell(value) for value in (low, high, figures.mean, figures.std)]


def _activation_record(figures: Figures) -> dict[str, Any]:
    low, high, mean, std = _figures(figures)
    return {
        "layer": figures.node,
        "shape": list(figures.shape),
        "min": low,
        "max": high,
        "mean": mean,
        "std": std,
        "elements": figures.count + figures.not_finite,
        "zeros": figures.zeros,
        "not_finite": figures.not_finite,
        "radius": None
        if figures.radius is None
        else {"mean": Number(figures.radius[0]), "most": Number(figures.radius[1])},
    }


# JSON


def version_document(description: Description) -> dict[str, Any]:
    """The JSON of a whole version."""
    network, origin = description.network, description.manifest.network
    return {
        "version": version_record(description),
        "network": None
        if network is None
        else json_form.write(network) | {"origin": origin and origin.origin},
        "summary": None if description.summary is None else asdict(description.summary),
        "parameters": description.parameters,
        "components": [_renamed(asdict(part), kind="class") for part in description.components],
        "hyperparameters": description.manifest.hyperparameters,
        "metrics": [_metric_record(item) for item in description.metrics],
        "logged": [
            {"name": item.name, "kind": item.plugin, "points": item.points}
            for item in description.logged
        ],
        "evaluations": [
            {"created": saved.created, "data_set": saved.data_set, **saved.data}
            for saved in description.evaluations
        ],
        "checkpoints": [_checkpoint_record(line) for line in description.snapshots],
        "tensors": [_matrix_record(description, matrix) for matrix in description.matrices],
        "files": [
            {"path": f.path, "role": f.role, "mode": f.mode, "bytes": f.bytes, "hash": f.blake3}
            for f in description.manifest.files
        ],
        "storage": _storage_record(description.storage),
        "card": {
            "task": description.own.task,
            "license": description.own.license,
            "tags": description.own.tags,
            "text": description.own.text,
        },
    }


def _renamed(record: dict[str, Any], **names: str) -> dict[str, Any]:
    """Return a record with the keys that users know instead of the names of fields."""
    return {names.get(key, key): value for key, value in record.items()}


def _metric_record(metric: Metric) -> dict[str, Any]:
    record = {key: value for key, value in asdict(metric).items() if key != "hash"}
    return {"name": metric.name, **_renamed(record, n="points")}


def _checkpoint_record(line: SnapshotLine) -> dict[str, Any]:
    return _renamed(asdict(line), own="default", matrices="tensors")


def _storage_record(storage: Storage) -> dict[str, Any]:
    return _renamed(asdict(storage), matrices="tensors") | {"ratio": storage.ratio}


def matrix_document(description: Description) -> dict[str, Any]:
    """The JSON of those matrices alone whose figures were asked for."""
    asked = {*description.statistics, *description.bounds}
    wanted = [matrix for matrix in description.matrices if matrix.name in asked]
    return {
        "version": version_record(description),
        "tensors": [_matrix_record(description, matrix) for matrix in wanted],
    }


def version_record(description: Description) -> dict[str, Any]:
    version = description.version
    return {
        "id": version.id,
        "name": version.name,
        "number": version.number,
        "step": None if description.snapshot is None else description.snapshot.step,
        "created": version.created,
        "author": version.author,
        "message": version.message,
        "state": version.state,
        "tags": list(version.tags),
        "parents": [asdict(parent) for parent in description.parents],
        "framework": version.framework,
        "quantized": version.scheme,
        "git": description.git,
        "mlflow": description.mlflow,
    }


def _matrix_record(description: Description, matrix: Matrix) -> dict[str, Any]:
    record: dict[str, Any] = {
        **asdict(matrix),
        "elements": matrix.elements,
        "bytes": matrix.nbytes,
        "stored": description.stored_bytes(matrix),
    }
    if matrix.name in description.statistics:
        figures = description.statistics[matrix.name]
        record["statistics"] = None if figures is None else asdict(figures)
    if matrix.name in description.readings:
        record["approximation"] = {
            **description.readings[matrix.name].as_json(),
            "bounds": _bounds_record(description.bounds.get(matrix.name)),
        }
    return record


def _bounds_record(bounds: StatisticsBounds | None) -> dict[str, Any] | None:
    """Intervals as [low, high]; null where `statistics` are exact."""
    if bounds is None:
        return None
    intervals = {
        name: [held.low, held.high]
        for name in ("zeros", "min", "max", "mean", "std", "l2")
        for held in [getattr(bounds, name)]
    }
    histogram = bounds.histogram
    counts = [[count.low, count.high] for count in histogram.counts]
    bins = {"low": histogram.low, "high": histogram.high, "counts": counts}
    return {"elements": bounds.elements, **intervals, "histogram": bins}
