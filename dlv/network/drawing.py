"""A network drawn as text: one line a node, lanes for what is still to be used further down."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlv.dataclass import dataclass
from dlv.network.graph import Network, Node
from dlv.network.inference import Tensors
from dlv.network.ops.op import Default, op_of
from dlv.network.sizes import text
from dlv.network.summary import Summary, summary
from dlv.network.vocabulary import attributes

_ASCII = str.maketrans("│─├┤┼┴╮╯●○×…→", "|-+++'.'*ox~>")
# Left out of the attributes column: told by other columns, or by the parameters.
_SILENT = ("bias", "shape", "dtype")
# No eye follows more; each line would be as long as the network is wide.
_MOST_LANES = 100


@dataclass
class _Line:
    lanes: str
    name: str = ""
    operation: str = ""
    shape: str = ""
    parameters: str = ""


def draw(
    network: Network,
    *,
    tensors: Tensors | None = None,
    plumbing: bool = False,
    width: int | None = None,
    ascii_only: bool = False,
) -> str:
    """The network from inputs to outputs, topological order, a line for each node.

    `plumbing` shows RESHAPE nodes too. `width` cuts the operation column so that lines
    fit, if they can; `ascii_only` is for terminals without box characters.
    """
    sums = summary(network, tensors)
    texts = _columns(_lines(network, plumbing, sums), width)
    known = sums.parameters is not None
    count = f"{sums.parameters:,} parameters" if known else "parameters not all known"
    cost = "" if sums.flops is None else f", {_short(sums.flops)} FLOPs per example"
    texts.append("")
    texts.append(f"{sums.layers} layers, depth {sums.depth}, {count}{cost}")
    drawing = "\n".join(texts) + "\n"
    return drawing.translate(_ASCII) if ascii_only else drawing


def _lines(network: Network, plumbing: bool, summary: Summary) -> list[_Line]:
    rows = {row.name: row for row in summary.rows}
    nodes = [node for node in network.topological() if plumbing or not node.plumbing]
    sources = _sources(network, plumbing)
    uses: dict[str, int] = {}
    for node in nodes:
        for name in sources[node.name]:
            uses[name] = uses.get(name, 0) + 1
    outputs = _outputs(network, plumbing)
    lanes = _Lanes(uses)
    lines = []
    shown = {item.name: (text(item.shape), "INPUT " + item.dtype) for item in network.inputs}
    shown.update({name: ("", "CONSTANT") for name in network.constants if name in uses})
    for name, (shape, operation) in shown.items():
        drawn = lanes.place(name, (), "○")
        lines.append(_Line(drawn[0], _clean(name), operation, _clean(shape)))
    for node in nodes:
        *before, drawn_last = lanes.place(
            node.name, [name for name in sources[node.name] if lanes.holds(name)], "●"
        )
        lines.extend(map(_Line, before))
        row = rows[node.name]
        name = _clean(node.name)
        if row.alias and row.alias != node.name:
            name += f" ({row.alias})"
        count = row.parameters
        many = "?" if count is None else f"{count:,}" if count else ""
        shape = text(row.out_shape) + (" → output" if node.name in outputs else "")
        lines.append(_Line(drawn_last, name, operation_text(node), _clean(shape), many))
    return lines


def _sources(network: Network, plumbing: bool) -> dict[str, dict[str, None]]:
    """Producers whose lanes lead to each node; unknown ones have none."""
    known = {node.name for node in network.nodes} | network.input_names | {*network.constants}
    result: dict[str, dict[str, None]] = {node.name: {} for node in network.nodes}
    for edge in network.edges() if plumbing else network.logical_edges():
        if edge.src in known:
            result[edge.dst][edge.src] = None
    return result


def _outputs(network: Network, plumbing: bool) -> set[str]:
    """The nodes drawn as outputs; behind hidden plumbing it is the layer that feeds it."""
    sources = (name for name, _ in network.outputs)
    if plumbing:
        return set(sources)
    return {port[0] for port in map(network.data_of, network.outputs) if port is not None}


def operation_text(node: Node) -> str:
    """An operation with the attributes that are not at their defaults: `CONV 64, 3×3, pad 1`."""
    if op_of(node).raw:
        name = "" if node.source is None else str(node.source.get("op", ""))
        return _clean(f"OP {name}".rstrip())
    parts = []
    for name, attribute in attributes(node.op, node.variant, node.attrs).items():
        value = node.attrs.get(name)
        if name in _SILENT or value is None or _is_default(value, attribute.default):
            continue
        if name in ("out", "kind"):
            parts.append(str(value))
        elif name == "kernel":
            parts.append("×".join(map(str, value)))
        elif isinstance(value, bool):
            parts.append(name if value else f"no {name}")
        else:
            parts.append(f"{name} {_value(value)}")
    head = node.op if node.variant is None else f"{node.op} {node.variant}"
    return _clean(f"{head} {', '.join(parts)}".rstrip())


def _is_default(value: object, default: object) -> bool:
    if isinstance(default, Default):
        return False
    if isinstance(value, tuple) and isinstance(default, int):
        return all(item == default or item == (default, default) for item in value)
    return value == default


def _value(value: object) -> str:
    """Short for people: one number where all axes, or both ends, agree."""
    if isinstance(value, tuple) and value:
        short = [_value(item) for item in value]
        if len(value) > 1 and len(set(short)) == 1:
            return short[0]
        return "(" + ", ".join(short) + ")"
    if isinstance(value, float):
        return f"{value:g}"
    return "any" if value is None else str(value)


class _Lanes:
    """Columns of the drawing; each carries one value from its producer to its last reader."""

    def __init__(self, uses: dict[str, int]) -> None:
        self._left = dict(uses)
        self._lanes: list[str | None] = []
        self._places: dict[str, int] = {}  # of what the lanes carry

    def holds(self, name: str) -> bool:
        return name in self._places

    def place(self, name: str, used: Sequence[str], mark: str) -> list[str]:
        """The line of a node; before it one that moves aside what is needed again, if any."""
        rows = []
        places = {value: self._places[value] for value in used}
        home = min(places.values()) if places else self._free(0)
        joined: dict[int, str] = {}
        for value, place in places.items():
            self._left[value] -= 1
            if place != home:
                joined[place] = value
            elif self._left[value] > 0:
                aside = self._free(home + 1)
                rows.append(self._row({home: "├", aside: "╮"}))
                self._put(value, aside)
        marks, last = {home: mark}, max(joined, default=home)
        for place, value in joined.items():
            ends = self._left[value] <= 0
            marks[place] = ("╯" if ends else "┤") if place == last else ("┴" if ends else "┼")
        self._clear(home)
        self._put(name, home)
        rows.append(self._row(marks))
        for place, value in joined.items():
            if self._left[value] <= 0:
                self._clear(place)
        if not self._left.get(name):
            self._clear(home)
        while self._lanes and self._lanes[-1] is None:
            self._lanes.pop()
        return rows

    def _put(self, value: str, place: int) -> None:
        self._lanes[place] = value
        self._places[value] = place

    def _clear(self, place: int) -> None:
        value, self._lanes[place] = self._lanes[place], None
        if value is not None and self._places.get(value) == place:
            del self._places[value]

    def _free(self, start: int) -> int:
        """The first free lane from there on."""
        try:
            return self._lanes.index(None, start)
        except ValueError:
            self._lanes.extend([None] * max(start + 1 - len(self._lanes), 1))
            return len(self._lanes) - 1

    def _row(self, marks: dict[int, str]) -> str:
        """A line with these marks, joined by a bar that runs behind the lanes it crosses."""
        first, last = min(marks), max(marks)
        cells = []
        width = max(len(self._lanes), last + 1)
        for place in range(min(width, _MOST_LANES)):
            inside = first <= place < last
            lane = "│" if place < len(self._lanes) and self._lanes[place] is not None else ""
            cells.append(marks.get(place) or lane or ("─" if first < place < last else " "))
            cells.append("─" if inside else " ")
        return "".join(cells).rstrip() if width <= _MOST_LANES else "".join(cells) + "…"


def _columns(lines: Sequence[_Line], width: int | None) -> list[str]:
    """The lines as text, columns aligned; the operation gives way where `width` is too small."""

    def widest(texts: Iterable[str]) -> int:
        return max(map(len, texts), default=0)

    lanes, names = widest(line.lanes for line in lines), widest(line.name for line in lines)
    operations = widest(line.operation for line in lines)
    shapes = widest(line.shape for line in lines)
    counts = widest(line.parameters for line in lines)
    if width is not None:
        operations = min(operations, max(10, width - lanes - names - shapes - counts - 8))
    result = []
    for line in lines:
        operation = line.operation
        if len(operation) > operations:
            operation = operation[: operations - 1] + "…"
        result.append(
            f"{line.lanes:<{lanes}}  {line.name:<{names}}  {operation:<{operations}}  "
            f"{line.shape:<{shapes}}  {line.parameters:>{counts}}".rstrip()
        )
    return result


def _clean(name: str) -> str:
    """Names come from files: nothing in them may steer the terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)


def _short(value: int) -> str:
    """1234567 as 1.23 M."""
    for unit, size in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return str(value)
