"""The JSON of an exported program (torch.export.save) as a neutral graph. Nothing is believed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from dlv.adapters.aten.record import (
    BUFFER,
    CONSTANT,
    INPUT,
    PARAMETER,
    Argument,
    Call,
    Given,
    Graph,
    Placeholder,
    Ref,
    Tagged,
    Value,
    place,
)
from dlv.canonical import NON_FINITE
from dlv.errors import Damaged, NewerFormat
from dlv.network.fields import FieldError, label, shown, whole
from dlv.network.sizes import MAX_RANK, Dim, Shape

SCHEMA = 8
_OTHER = "other"
# torch's numbers of dtypes in this format: the name here.
DTYPES = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    9: "raw:complex32",
    10: "complex64",
    11: "complex128",
    12: "bool",
    13: "bfloat16",
    28: "uint16",
    29: "float8_e4m3",
    30: "float8_e5m2",
    31: "float8_e4m3fnuz",
    32: "float8_e5m2fnuz",
    33: "float8_e8m0",
    34: "uint32",
    35: "uint64",
}
_LAYOUTS = {
    1: "sparse_coo",
    2: "sparse_csr",
    3: "sparse_csc",
    4: "sparse_bsr",
    5: "sparse_bsc",
    6: "_mkldnn",
    7: "strided",
}
_MEMORY_FORMATS = {
    1: "contiguous_format",
    2: "channels_last",
    3: "channels_last_3d",
    4: "preserve_format",
}
_SYMBOL = re.compile(r"Symbol\('(\w+)'(?:, \w+=\w+)*\)")
_INTEGER = re.compile(r"Integer\((-?[0-9]{1,18})\)")


def read(program: Any) -> Graph:
    """The graph of a program: everything in its JSON is checked on the way."""
    version = item(program, "schema_version", dict)
    major = version.get("major")
    if major != SCHEMA:
        raise NewerFormat(
            f"exported programs of format {shown(major)} are not known to this dlv",
            why=f"it reads format {SCHEMA}",
        )
    module = item(program, "graph_module", dict)
    held, signature = item(module, "graph", dict), item(module, "signature", dict)
    graph = _values(held)
    for spec in item(signature, "input_specs", list):
        graph.placeholders.append(_placeholder(spec, graph))
    for node in item(held, "nodes", list):
        graph.calls.append(_call(node, graph))
    for spec in item(signature, "output_specs", list):
        kind, content = _union(spec)
        if kind in ("user_output", "loss_output"):
            found = item(content, "arg", dict)
            graph.outputs.append(
                Ref(text(item(found, "name", str)))
                if kind == "loss_output"
                else _argument(found, graph)
            )
    return graph


def _values(held: Any) -> Graph:
    """A graph that knows its values, and nothing else yet."""
    graph = Graph()
    for name, meta in item(held, "tensor_values", dict).items():
        graph.values[text(name)] = tensor_value(meta)
    for name, number in item(held, "sym_int_values", dict).items():
        graph.values[text(name)] = Value(None, (dim(number),))
    for key in ("sym_bool_values", "sym_float_values"):
        for name in item(held, key, dict, {}):
            graph.values[text(name)] = Value(None, (None,))
    return graph


def _inner(content: Any, graph: Graph) -> Argument:  # noqa: ARG001
    """A graph that a call is given."""
    held = item(content, "graph", dict)
    inner = _values(held)
    for given in item(held, "inputs", list):
        ref = _argument(given, inner)
        if not isinstance(ref, Ref):
            raise _damaged("an inner graph takes what is no value")
        inner.placeholders.append(Placeholder(ref.name, _OTHER, ""))
    for node in item(held, "nodes", list):
        inner.calls.append(_call(node, inner))
    inner.outputs = [_argument(each, inner) for each in item(held, "outputs", list)]
    return Tagged("graph", inner)


def item(data: Any, key: str, kind: type, default: Any = None) -> Any:
    """An entry of an object, of the kind that it has to be."""
    if not isinstance(data, dict):
        raise _damaged(f"{shown(data)} stands where an object with {key!r} should")
    value = data.get(key, default)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _damaged(f"{key!r} is {shown(value)}")
    return value


def text(value: Any) -> str:
    """A name."""
    try:
        return label(value, "a name in an exported program")
    except FieldError as error:
        raise _damaged(error.message) from error


def tensor_value(meta: Any) -> Value:
    """What is known of a tensor."""
    sizes = item(meta, "sizes", list)
    if len(sizes) > MAX_RANK:
        raise _damaged(f"a tensor of {len(sizes)} axes")
    shape = tuple(dim(size) for size in sizes)
    return Value(dtype(meta.get("dtype")), shape, _dense(shape, meta.get("strides")))


def _dense(shape: Shape, strides: Any) -> bool | None:
    """Whether elements lie one behind the other; None where lengths that are open decide."""
    if not isinstance(strides, list) or len(strides) != len(shape):
        return None
    step: int | None = 1
    for length, stride in zip(
        reversed(shape), reversed([dim(each) for each in strides]), strict=True
    ):
        if length == 1:
            continue
        if step is None or not isinstance(stride, int):
            return None
        if stride != step:
            return False
        step = step * length if isinstance(length, int) else None
    return True


def dtype(number: Any) -> str:
    if not whole(number) or number < 1:
        raise _damaged(f"the dtype {shown(number)}")
    return DTYPES.get(number, f"raw:torch {number}")


def dim(size: Any) -> Dim:
    """A length: a number, the name of a symbol, or None for what is computed from some."""
    kind, content = _union(size)
    if kind == "as_int":
        return _whole(content)
    expression = item(content, "expr_str", str)
    symbol, integer = _SYMBOL.fullmatch(expression), _INTEGER.fullmatch(expression)
    if integer:
        return int(integer[1])
    return symbol[1] if symbol else None


def _damaged(why: str) -> Damaged:
    return Damaged("an exported program is damaged", why=why)


def _union(data: Any) -> tuple[str, Any]:
    """The one entry of an object that says what it is."""
    if not isinstance(data, dict) or len(data) != 1:
        raise _damaged(f"{shown(data)} is not one thing")
    return next(iter(data.items()))


def _whole(value: Any) -> int:
    if not whole(value):
        raise _damaged(f"the number {shown(value)}")
    number: int = value
    return number


def _placeholder(spec: Any, graph: Graph) -> Placeholder:
    kind, content = _union(spec)
    if kind in ("parameter", "buffer", "tensor_constant"):
        name = text(item(item(content, "arg", dict), "name", str))
        if kind == "parameter":
            return Placeholder(name, PARAMETER, text(item(content, "parameter_name", str)))
        if kind == "tensor_constant":
            return Placeholder(name, CONSTANT, text(item(content, "tensor_constant_name", str)))
        sort = BUFFER if item(content, "persistent", bool) else CONSTANT
        return Placeholder(name, sort, text(item(content, "buffer_name", str)))
    if kind == "user_input":
        given = _argument(item(content, "arg", dict), graph)
        if isinstance(given, Ref):
            return Placeholder(given.name, INPUT, given.name)
        return Placeholder(f"input {len(graph.placeholders)}", _OTHER, "")
    return Placeholder(f"{kind} {len(graph.placeholders)}", _OTHER, "")


def _call(node: Any, graph: Graph) -> Call:
    target = text(item(node, "target", str))
    given = []
    for entry in item(node, "inputs", list):
        name = item(entry, "name", str)
        value = _argument(item(entry, "arg", dict), graph)
        given.append(Given(text(name) if name else "", value, entry.get("kind") == 2))
    outputs: list[str | None] = []
    entries = item(node, "outputs", list)
    several = len(entries) > 1 or node.get("is_hop_single_tensor_return") is False
    for entry in entries:
        kind, content = _union(entry)
        several = several or kind == "as_tensors"
        outputs += _names(kind, content)
    name = node.get("name") or next((each for each in outputs if each), target)
    stack = item(node, "metadata", dict).get("nn_module_stack", "")
    visit, path = _last(stack) if isinstance(stack, str) else ("", "")
    op = target.removeprefix("torch.ops.").removeprefix("_")
    return Call(text(name), op, tuple(given), tuple(outputs), several, *place(path, visit))


def _names(kind: str, content: Any) -> list[str | None]:
    """The values that an output stands for."""
    if kind == "as_none":
        return [None]
    if kind == "as_tensors" and isinstance(content, list):
        return [text(item(each, "name", str)) for each in content]
    for key in ("name", "as_name"):
        if isinstance(content, dict) and key in content:
            return [text(content[key])]
    raise _damaged(f"an output is {shown(kind)}")


def _last(stack: str) -> tuple[str, str]:
    """The innermost module: which visit of it, and its path."""
    parts = stack.rpartition(";")[2].split(",", 2)
    if len(parts) < 3:
        return "", ""
    if parts[1]:
        text(parts[1])
    return parts[0], parts[1]


def _argument(data: Any, graph: Graph) -> Argument:
    kind, content = _union(data)
    if kind in _ARGUMENTS:
        return _ARGUMENTS[kind](content, graph)
    if kind in _LISTS and isinstance(content, list):
        return [_ARGUMENTS[_LISTS[kind]](each, graph) for each in content]
    if kind in ("as_nested_tensors", "as_int_lists", "as_float_lists"):
        if not isinstance(content, list) or not all(isinstance(each, list) for each in content):
            raise _damaged(f"a list of lists is {shown(content)}")
        inner = {"n": "as_tensor", "i": "as_int", "f": "as_float"}[kind[3]]
        return [[_ARGUMENTS[inner](each, graph) for each in one] for one in content]
    if isinstance(kind, str) and kind.startswith("as_"):
        return Tagged("text", kind[3:])
    raise _damaged(f"an argument is {shown(kind)}")


def _reference(content: Any, graph: Graph) -> Argument:
    name = text(item(content, "name", str))
    return Ref(name) if name in graph.values else Tagged("text", name)


def _symbolic(content: Any, graph: Graph) -> Argument:
    kind, value = _union(content)
    if kind == "as_name":
        return _reference({"name": value}, graph)
    return _ARGUMENTS[kind](value, graph) if kind in ("as_int", "as_float", "as_bool") else None


def _optional(content: Any, graph: Graph) -> Argument:
    kind, value = _union(content)
    return _reference(value, graph) if kind == "as_tensor" else None


def _integer(content: Any, graph: Graph) -> Argument:  # noqa: ARG001
    return _whole(content)


def _float(content: Any, graph: Graph) -> Argument:  # noqa: ARG001
    if isinstance(content, str) and content in NON_FINITE:
        return NON_FINITE[content]
    if type(content) is float or whole(content):
        return float(content)
    raise _damaged(f"the number {shown(content)}")


def _boolean(content: Any, graph: Graph) -> Argument:  # noqa: ARG001
    if not isinstance(content, bool):
        raise _damaged(f"a truth value is {shown(content)}")
    return content


def _string(content: Any, graph: Graph) -> Argument:  # noqa: ARG001
    return text(content) if content != "" else ""


def _device(content: Any, graph: Graph) -> Argument:  # noqa: ARG001
    kind, index = item(content, "type", str), content.get("index")
    return Tagged("device", text(kind) if index is None else f"{text(kind)}:{_whole(index)}")


def _complex(content: Any, graph: Graph) -> Argument:
    return Tagged("complex", [_float(content.get(key), graph) for key in ("real", "imag")])


def _listed(kind: str, names: dict[int, str]) -> Callable[[Any, Graph], Argument]:
    def read_one(content: Any, graph: Graph) -> Argument:  # noqa: ARG001
        number = _whole(content)
        return Tagged(kind, names.get(number, f"torch {number}"))

    return read_one


_ARGUMENTS: dict[str, Callable[[Any, Graph], Argument]] = {
    "as_none": lambda content, graph: None,  # noqa: ARG005
    "as_tensor": _reference,
    "as_optional_tensor": _optional,
    "as_int": _integer,
    "as_float": _float,
    "as_bool": _boolean,
    "as_string": _string,
    "as_sym_int": _symbolic,
    "as_sym_float": _symbolic,
    "as_sym_bool": _symbolic,
    "as_scalar_type": lambda content, graph: Tagged("dtype", dtype(content)),  # noqa: ARG005
    "as_memory_format": _listed("memory_format", _MEMORY_FORMATS),
    "as_layout": _listed("layout", _LAYOUTS),
    "as_device": _device,
    "as_complex": _complex,
    "as_graph": _inner,
}
_LISTS = {
    "as_tensors": "as_tensor",
    "as_optional_tensors": "as_optional_tensor",
    "as_ints": "as_int",
    "as_floats": "as_float",
    "as_bools": "as_bool",
    "as_strings": "as_string",
    "as_sym_ints": "as_sym_int",
    "as_sym_floats": "as_sym_float",
    "as_sym_bools": "as_sym_bool",
}
