"""The graph of an ONNX file as a network of dlv's vocabulary."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

from dlv.adapters.checkpoint import Tensor
from dlv.adapters.onnx.builder import Builder, Cannot, Held
from dlv.adapters.onnx.call import Call, Reader, aten_source
from dlv.adapters.onnx.model import Graph, Model, Operator, bodies_in, captured, form, unknown
from dlv.adapters.onnx.patterns import Pattern, find
from dlv.adapters.onnx.rules import (
    activation,
    attention,
    combine,
    conv,
    dense,
    movement,
    norm,
    pool,
)
from dlv.adapters.onnx.rules.combine import is_whole
from dlv.adapters.onnx.rules.dense import emit_full
from dlv.adapters.onnx.tensors import Stored, dtype_of
from dlv.adapters.onnx.values import FOLDED, FOLDED_BY, Known, Length, Literal, fold, lengths
from dlv.dataclass import dataclass
from dlv.errors import Damaged
from dlv.network.fields import FieldError
from dlv.network.graph import Network, Port
from dlv.network.inference import node_shapes
from dlv.network.order import topological
from dlv.network.sizes import ShapeError

# Values of Constant nodes that are larger are weights, whatever the exporter called them.
MOST_CONSTANT_BYTES = 64 << 10
# Initializers that went into attributes are few numbers.
_MOST_SETTINGS, _MOST_FRACTIONS = 4096, 8

READERS: dict[str, Reader] = {
    **conv.READERS,
    **dense.READERS,
    **pool.READERS,
    **norm.READERS,
    **activation.READERS,
    **combine.READERS,
    **movement.READERS,
    **attention.READERS,
}
# Tried after the rule of the vocabulary found that it does not apply.
SECOND: dict[str, Reader] = {**dense.SECOND, **activation.SECOND, **movement.SECOND}
# Of whole numbers these are kept: the layers are of fractions, and torch widens what it adds up.
_FRACTIONS = (
    *("Conv", "ConvTranspose", "Gemm", "MatMul", "AveragePool", "GlobalAveragePool"),
    *("ReduceMean", "ReduceL2", "ReduceLogSumExp"),
)
_SUMS = ("ReduceSum", "CumSum")
_ODD = ("raw:", "float8_e8m0")
_LISTS = {"value_ints": "int64", "value_floats": "float32"}
_SINGLE = {"value_int": "int64", "value_float": "float32"}


@dataclass
class Built:
    network: Network
    tensors: list[tuple[Stored, Tensor]]
    constants: list[Tensor]
    notes: list[str]
    places: dict[str, Port]  # where the values of the file stand in the network


def build(model: Model, raw: Collection[str] = ()) -> Built:
    """Return the network and its tensors, unused ones included; small constants become attributes.

    `raw`: values whose operators are kept as they are, whatever rules there may be.
    """
    graph = model.graph
    _check(graph, model.span.file.name)
    graph.operators = _sorted(graph, model.span.file.name)
    _drop_unread(graph)
    builder = Builder(model)
    patterns, inside = find(graph, model.opsets.get("", 1))
    places = {id(operator): place for place, operator in enumerate(graph.operators)}
    for name in sorted(graph.odd):
        _unread(builder, name)
    for operator in graph.operators:
        if id(operator) in inside:
            continue
        pattern = patterns.get(id(operator))
        parts = (operator,) if pattern is None else pattern.operators
        kept = any(name in raw for part in parts for name in part.outputs)
        if (
            kept
            or pattern is None
            or not _attempt(builder, operator, partial(_whole, pattern), settle=False)
        ):
            for part in sorted(parts, key=lambda each: places[id(each)]):
                if any(name in raw for name in part.outputs):
                    Call(builder, part, part.outputs).raw()
                else:
                    _translate(builder, part)
    outputs = [_output(builder, name) for name in graph.outputs]
    network = builder.network(outputs)
    if any(node.op == "OP" for node in network.nodes):
        network = builder.network(_outputs_of_known_shape(builder, network))
    return _finish(builder, network)


def _check(graph: Graph, file_name: str) -> None:
    """Every value is made once."""
    made = {*graph.inputs, *graph.stored, *graph.odd}
    for operator in graph.operators:
        for name in operator.outputs:
            if name and name in made:
                raise Damaged(f"the graph of {file_name} makes {name!r} twice")
            made.add(name)
    for name in graph.outputs:
        if name not in made:
            raise Damaged(f"the output {name!r} of {file_name} is not produced by anything")


def _sorted(graph: Graph, file_name: str) -> list[Operator]:
    """Producers first, otherwise in the order of the file, in which they should be anyway."""
    maker: dict[str, int] = {}
    for place, operator in enumerate(graph.operators):
        maker.update({name: place for name in operator.outputs if name})
    given = {*graph.inputs, *graph.stored, *graph.odd}
    producers: list[list[int]] = []
    for operator in graph.operators:
        bodies = [b for value in operator.attrs.values() for b in bodies_in(value)]
        inside = captured(bodies) if bodies else []
        producers.append([])
        for name in {*operator.inputs, *(name for name in inside if name in maker)} - {""}:
            if name in maker:
                producers[-1].append(maker[name])
            elif name not in given:
                raise Damaged(
                    f"the graph of {file_name} uses {name!r}, which nothing produces",
                    why=f"in {operator.full_kind} {operator.name!r}",
                )
    order = topological(producers)
    if len(order) < len(graph.operators):
        stuck = min({*range(len(graph.operators))} - {*order})
        operator = graph.operators[stuck]
        raise Damaged(
            f"the graph of {file_name} has a cycle",
            why=f"at {operator.full_kind} {operator.name!r}",
        )
    return [graph.operators[place] for place in order]


def _drop_unread(graph: Graph) -> None:
    """Second outputs that nobody reads, such as the mask of Dropout, count as left out."""
    read = set(graph.outputs)
    for operator in graph.operators:
        bodies = [body for value in operator.attrs.values() for body in bodies_in(value)]
        read.update(operator.inputs, captured(bodies) if bodies else ())
    for operator in graph.operators:
        operator.outputs[1:] = [name if name in read else "" for name in operator.outputs[1:]]


def _attempt(
    builder: Builder, operator: Operator, rule: Reader, *, flow: bool = False, settle: bool = True
) -> bool:
    """Whether a rule applied; if not, nothing is left of the attempt."""
    before = len(builder.nodes)
    try:
        call = Call(builder, operator, operator.outputs, flow=flow)
        rule(call)
        if settle:
            call.settle()
        if any(name and name not in builder.states for name in operator.outputs):
            raise Cannot("more outputs than the rule gives")
    except (Cannot, FieldError, ShapeError, ArithmeticError, LookupError, TypeError, ValueError):
        # Whatever is odd about an operator, it can still be kept as it is.
        builder.take_back(before)
        return False
    return True


def _translate(builder: Builder, operator: Operator) -> None:
    if not any(operator.outputs):
        return
    key = (operator.domain, operator.kind)
    plain = not operator.domain and key not in builder.model.functions
    # Texts, sequences and numbers of four bits are nothing that a rule speaks of.
    odd = any((builder.dtype(name) or "").startswith(_ODD) for name in operator.inputs)
    first = builder.dtype(operator.inputs[0]) if operator.inputs else None
    odd = odd or (operator.kind in _FRACTIONS and is_whole(first))
    odd = odd or (operator.kind in _SUMS and is_whole(first) and first != "int64")
    if plain and not odd:
        if operator.kind == "Constant" and _constant(builder, operator):
            return
        if operator.kind == "Identity" and _attempt(builder, operator, _identity):
            return
        known = _worked_out(builder, operator)
        if known is not None:
            builder.states[operator.outputs[0]] = known
            builder.waiting[operator.outputs[0]] = operator
            return
        for rules, flow in ((READERS, False), (SECOND, False), (READERS, True)):
            rule = rules.get(operator.kind)
            if rule is not None and _attempt(builder, operator, rule, flow=flow):
                return
    Call(builder, operator, operator.outputs).raw()


def _identity(call: Call) -> None:
    state = call.builder.states[call.value(0)]
    call.builder.states[call.outputs[0]] = state
    if call.value(0) in call.builder.waiting:
        call.builder.waiting[call.outputs[0]] = call.operator


def _constant(builder: Builder, operator: Operator) -> bool:
    if len(operator.attrs) != 1 or len(operator.outputs) != 1 or any(operator.inputs):
        return False
    [(key, value)], name = operator.attrs.items(), operator.outputs[0]
    if key == "value" and isinstance(value, Stored):
        value.name = name
        builder.states[name] = Held(value, constant=value.nbytes <= MOST_CONSTANT_BYTES)
    elif key in _SINGLE and isinstance(value, (int, float)):  # of the kind that the key names
        builder.states[name] = Literal(_SINGLE[key], (), (value,))
    elif key in _LISTS and isinstance(value, list) and len(value) <= _MOST_SETTINGS:
        builder.states[name] = Literal(_LISTS[key], (len(value),), tuple(value))
    else:
        return False
    return True


def _worked_out(builder: Builder, operator: Operator) -> Known | None:
    """Numbers and lengths that can be told now."""
    if len(operator.outputs) != 1:
        return None
    if operator.kind == "Shape" and len(operator.inputs) == 1 and operator.inputs[0]:
        return _shape(builder, operator) if _foldable(builder, operator) else None
    if operator.kind not in FOLDED or not _foldable(builder, operator):
        return None
    inputs = [builder.known(name) if name else None for name in operator.inputs]
    while inputs and not operator.inputs[len(inputs) - 1]:
        inputs.pop()
    attrs = dict(operator.attrs)
    if operator.kind == "Cast":
        attrs["dtype"] = dtype_of(attrs["to"], "a Cast") if type(attrs.get("to")) is int else ""
    elif operator.kind == "ConstantOfShape":
        filler = attrs.get("value")
        attrs["filler"] = ("float32", 0.0)
        if filler is not None:
            values = filler.values(1) if isinstance(filler, Stored) else None
            if not values:
                return None
            attrs["filler"] = (filler.dtype, values[0])
    attrs["kind"] = operator.kind
    return fold(operator.kind, inputs, attrs)


def _foldable(builder: Builder, operator: Operator) -> bool:
    """Whether the operator says nothing but what `fold` reads."""
    version = builder.model.opsets.get("", 1)
    found = form("", operator.kind, version)
    if found is None or len(operator.inputs) > found.most:
        return False
    return unknown(found, operator.attrs, FOLDED_BY.get(operator.kind, ())) is None


def _shape(builder: Builder, operator: Operator) -> Known | None:
    value = operator.inputs[0]
    shape, state = builder.shape(value), builder.states[value]
    start, end = operator.attrs.get("start", 0), operator.attrs.get("end")
    if shape is None or type(start) is not int or not (end is None or type(end) is int):
        return None
    entries: list[int | Length] = []
    for axis, dim in enumerate(shape):
        if isinstance(dim, int):
            entries.append(dim)
        elif isinstance(state, tuple):
            entries.append(Length(value, axis, dim if dim in builder.symbols else None))
        else:
            return None
    return lengths(entries[start:end])


def _whole(pattern: Pattern, call: Call) -> None:
    """The node of a pattern."""
    first, last = pattern.operators[0].name, call.operator.name
    inner = bool(last) and first.startswith(f"{last}/")  # a part of what the last one is
    name = first if pattern.kind in ("FULL", "SILU") and not inner else ""
    call.name = name
    builder, x = call.builder, call.port_of(pattern.x)
    if pattern.kind == "FULL":
        state = builder.states[pattern.weight]
        if not isinstance(state, Held):
            raise Cannot("no stored tensor")
        layout = "out_in" if state.flipped else "in_out"
        weight, bias = call.tensor(state), pattern.bias
        return emit_full(call, x, weight, state.stored.shape, layout, bias)
    if pattern.kind in ("LAYER", "RMS"):
        slots = {"weight": pattern.weight, "bias": pattern.bias}
        params = {slot: tensor for slot, tensor in slots.items() if tensor}
        shape = builder.shape(pattern.x)
        if pattern.axis != -1 and (shape is None or pattern.axis != len(shape) - 1):
            raise Cannot("not the last axis")
        width = (shape or (None,))[-1]
        for tensor in params.values():
            if not isinstance(width, int) or builder.shape(tensor) != (width,):
                raise Cannot("a weight of another shape")
        attrs = {"eps": pattern.eps, "axis": -1}
        return call.emit("NORM", attrs, (x,), variant=pattern.kind, params=params)
    how = {"GELU": {"approximate": "none"}, "TANH_GELU": {"approximate": "tanh"}}
    variant = pattern.kind.removeprefix("TANH_")
    return call.emit("ACT", how.get(pattern.kind, {}), (x,), variant=variant)


def _unread(builder: Builder, name: str) -> None:
    """An initializer of texts, or a sparse one: it stays in the file."""
    operator = Operator(name, "Initializer", "", [], [name], {})
    Call(builder, operator, [name]).raw()
    builder.notes[
        f"the initializer {name!r} contains strings or is sparse: it stays in the file"
    ] = None


def _output(builder: Builder, name: str) -> Port:
    operator = Operator("", "Identity", "", [name], [name], {})
    return Call(builder, operator, [name], flow=True).port_of(name)


def _outputs_of_known_shape(builder: Builder, network: Network) -> list[Port]:
    """Outputs of which only the file knows a shape: behind a node that keeps it."""
    shapes = node_shapes(network)
    found = []
    for name, (maker, place) in zip(builder.graph.outputs, network.outputs, strict=True):
        ports, said = shapes.get(maker, (None,)), builder.graph.values.get(name)
        known = place < len(ports) and ports[place] is not None
        if known or said is None or said.shape is None or said.dtype.startswith("raw:"):
            found.append((maker, place))
            continue
        source = aten_source("alias.default", {"n": 0})
        label, inputs = f"{maker}.output", [(maker, place)]
        made = builder.emit_call(label, source, inputs, shape=said.shape)
        found.append((made, 0))
    return found


def _finish(builder: Builder, network: Network) -> Built:
    graph, network = builder.graph, _without_idle(network)
    roles: dict[str, str] = {}
    for node in network.nodes:
        for slot, name in node.params.items():
            roles.setdefault(name, "buffer" if slot.startswith("running_") else "weight")
    read = {port[0] for node in network.nodes for port in node.inputs}
    read |= {port[0] for port in network.outputs}
    kept = {name: digest for name, digest in network.constants.items() if name in read}
    consumed = {name for operator in graph.operators for name in operator.inputs}
    tensors = []
    for name, stored in builder.tensors.items():
        if name in roles or not (name in consumed and _setting(stored)):
            tensors.append((stored, stored.tensor(name, roles.get(name, "weight"))))
    shapes = {name: builder.constants[name].shape for name in kept}
    network = replace(network, constants=kept, constant_shapes=shapes)
    if builder.raw_kinds:
        kinds = sorted(builder.raw_kinds.items(), key=lambda item: (-item[1], item[0]))
        listed = ", ".join(f"{count} {kind}" for kind, count in kinds[:8])
        more = f" and {len(kinds) - 8} other kinds" if len(kinds) > 8 else ""
        builder.notes[f"outside dlv's vocabulary, stored as they are: {listed}{more}"] = None
    constants = [builder.constants[name] for name in kept]
    places = {name: state for name, state in builder.states.items() if isinstance(state, tuple)}
    return Built(network, tensors, constants, list(builder.notes), places)


def _without_idle(network: Network) -> Network:
    """Without plumbing that nobody reads: what only told shapes, and outputs nobody asked for."""
    read = {name for name, _ in network.outputs}
    kept = []
    for node in reversed(network.nodes):
        if node.name in read or not node.plumbing:
            kept.append(node)
            read.update(name for name, _ in node.inputs)
    return replace(network, nodes=tuple(reversed(kept)))


def _setting(stored: Stored) -> bool:
    """Whether an initializer that went into attributes or constants is no weight."""
    fractions = stored.dtype.startswith(("float", "bfloat", "complex"))
    return stored.elements <= (_MOST_FRACTIONS if fractions else _MOST_SETTINGS)
