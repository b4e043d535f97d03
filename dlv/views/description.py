"""How `desc` lays a version out: for people and pipes, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from dlv.dtypes import tensor_bytes
from dlv.metadata.metrics import Summary as Metric
from dlv.network.drawing import draw, operation_text
from dlv.network.graph import Network
from dlv.network.summary import Row
from dlv.terminal.output import Block, Fields, Heading, Line, Output, Verbatim
from dlv.terminal.table import Bytes, Cell, Column, Count, Id, Items, Number, Table, Text, Time
from dlv.versions.describe import Description
from dlv.views.values import setting, shape
from dlv.weights.inventory import Matrix

_BAR = 32  # columns of the longest one


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
    rows = [_metric(item) for item in found.metrics]
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
    columns: list[Column | str] = [
        Column("age", key="created"),
        "step",
        Column("data", least=12),
        "rows",
    ]
    return Table([*columns, Column("metrics", least=16), "mode"], rows)


def _metric(item: Metric) -> list[Cell]:
    def number(value: float | None) -> Cell:
        return None if value is None else Number(value)

    return [
        *(item.name, number(item.last), item.last_step, number(item.min), item.min_step),
        *(number(item.max), item.max_step),
    ]


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
    rows: list[list[Cell]] = []
    for matrix in shown:
        stored = found.stored_bytes(matrix)
        rows.append(
            [
                matrix.name,
                matrix.dtype,
                shape(matrix.shape),
                f"tied to {matrix.tied}" if matrix.tied else matrix.role,
                None if matrix.nbytes is None else Bytes(matrix.nbytes),
                None if stored is None else Bytes(stored),
            ]
        )
    columns: list[Column | str] = [
        Column("matrix", least=20),
        Column("dtype", fixed=True),
        "shape",
        "role",
    ]
    return Table([*columns, "size", "stored"], rows)


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
