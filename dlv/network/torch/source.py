"""What runs a node in torch exactly as it was exported: its recorded call of an aten operation.

A network may come from anyone, so that only operations of a list are looked up, never other
code: torch.ops.aten has some that write files, change settings or read beyond a tensor's end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from dlv.canonical import float_of
from dlv.errors import DlvError, UnsafeInput, nearest
from dlv.network.aten_names import NAMES, STATISTICS, UPDATING
from dlv.network.fields import NON_FINITE
from dlv.network.graph import Node
from dlv.network.torch.ops_shapes import function_of
from dlv.network.torch.types import Call, Run, dtype_of, refuse, torch

_NAME = re.compile(r"aten\.([A-Za-z0-9_]{1,80})\.([A-Za-z0-9_]{1,80})")
_MOST_DEPTH = 8
# The types of arguments and results that networks compute with; a text only where it is an option.
_TYPES = {
    *("Tensor", "Optional", "List", "int", "SymInt", "float", "SymFloat", "bool", "SymBool"),
    *("number", "Scalar", "complex", "Device", "Generator", "ScalarType", "Layout"),
    *("MemoryFormat",),
}
_RESULTS = _TYPES - {"Device", "Generator", "Optional", "Layout"}
_OPTIONS = {
    *("approximate", "equation", "mode", "rounding_mode", "indexing", "padding", "reduce"),
    *("norm", "interpolation", "side", "UPLO", "driver", "pad_mode", "padding_side", "ord", "p"),
    "assert_msg",
}
# No result, yet asked for by exported programs.
_CHECKS = ("_assert", "sym_constrain_range")
# Arguments that say whether the call trains: of the module, not of the moment of the export.
_GATES = ("training", "train", "use_input_stats")
_GATED_SHARE = "dropout_p"
_MEMORY_FORMATS = {
    "contiguous": "contiguous_format",
    "preserve": "preserve_format",
    "channels_last": "channels_last",
    "channels_last_3d": "channels_last_3d",
}


def source_run(node: Node) -> Run:
    """What runs a node from its `source`, which has the dialect aten."""
    source = node.source or {}
    name, args, kwargs = source.get("op"), source.get("args", []), source.get("kwargs", {})
    if not isinstance(name, str) or not isinstance(args, list) or not isinstance(kwargs, dict):
        raise refuse(node, "its source is no call")
    try:
        function, names = resolve(name)
    except DlvError as error:
        error.message = f"node {node.name!r}: {error.message}"
        error.args = (error.message,)
        raise
    if names and (len(args) > len(names) or not kwargs.keys() <= set(names)):
        raise refuse(node, f"{name} has no such arguments")
    given = [_argument(node, item, 0) for item in args]
    keyed = {key: _argument(node, item, 0) for key, item in kwargs.items()}
    _set_gates(names, given, keyed)

    def run(call: Call) -> Any:
        return function(
            *[make(call) for make in given], **{key: make(call) for key, make in keyed.items()}
        )

    return run


@cache
def resolve(name: str) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """The function of that name and its arguments' names; UnsafeInput for any other code."""
    match = _NAME.fullmatch(name)
    if match is None:
        function = function_of(name)
        if function is None:
            raise _unsafe(name, "it is neither an operation of aten nor arithmetic on sizes")
        return function, ()
    base, overload = match.groups()
    packet = getattr(torch.ops.aten, base, None)
    if not isinstance(packet, type(torch.ops.aten.add)) or overload not in packet.overloads():
        raise UnsafeInput(
            f"torch {torch.__version__} has no operation `{name}`",
            hint="it may be one of another version of torch",
        )
    found = getattr(packet, overload)
    _check(name, base, found._schema)
    if found in _VIEWS:
        found = torch.ops.aten.reshape.default
    return found, tuple(argument.name for argument in found._schema.arguments)


def kept_slots(node: Node) -> set[str]:
    """Slots of tensors that the recorded call itself changes: they are not trained."""
    source = node.source or {}
    function, names = resolve(source["op"])
    given = dict(zip(names, source.get("args", []), strict=False)) | source.get("kwargs", {})
    schema = getattr(function, "_schema", None)  # arithmetic has none
    arguments = schema.arguments if schema else ()
    written = {a.name for a in arguments if a.alias_info and a.alias_info.is_write}
    written |= STATISTICS & set(names)
    return {given[name]["p"] for name in written & given.keys() if "p" in given[name]}


def _check(name: str, base: str, schema: Any) -> None:
    in_place = base not in NAMES and base.endswith("_") and base[:-1] in NAMES
    if base not in NAMES and not in_place:
        raise UnsafeInput(
            f"`{name[:80]}` is not run for a network",
            why="it is none of the operations that are known to compute and do nothing else",
            hint=f"write the layer without {base}, or build the module from its own code"
            " and load the exported weights into it",
            did_you_mean=[f"aten.{word}" for word in nearest(base, NAMES)],
        )
    written = {a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write}
    if in_place:
        written.discard(schema.arguments[0].name)
    elif base in UPDATING:
        written -= STATISTICS
    if written:
        raise _unsafe(name, f"it writes into its argument {min(written)!r}")
    for argument in schema.arguments:
        words = _words(argument.type)
        if "str" in words and argument.name in _OPTIONS:
            words.discard("str")
        optional = "Generator" not in words or "Optional" in words
        if not words <= _TYPES or not optional:
            raise _unsafe(name, f"its argument {argument.name!r} is {argument.type}")
    results = [result.type for result in schema.returns]
    if not all(_words(result) <= _RESULTS for result in results):
        raise _unsafe(name, "it gives no tensors")
    if not results and not base.startswith(_CHECKS):
        raise _unsafe(name, "it gives nothing back")


def _words(kind: Any) -> set[str]:
    return set(re.findall(r"[A-Za-z_.]+", str(kind)))


def _unsafe(name: str, why: str) -> UnsafeInput:
    return UnsafeInput(
        f"`{name[:80]}` is not run for a network",
        why=why,
        hint="a stored network may name operations on tensors and numbers, no other code",
    )


# Whether a view can be had depends on how a kernel lays out its result: where it was exported,
# a copy may have been left out that another device, or another kernel, needs.
_VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)

Make = Callable[[Call], Any]


def _argument(node: Node, item: Any, depth: int) -> Make:
    """What makes one argument of the call out of what came in."""
    if not isinstance(item, dict) or len(item) != 1 or depth > _MOST_DEPTH:
        raise refuse(node, f"its source holds {str(item)[:60]}, which is no argument")
    [(tag, value)] = item.items()
    if tag == "n" and type(value) is int and 0 <= value < len(node.inputs):
        return lambda call: call.inputs[value]
    if tag == "p" and isinstance(value, str) and value in node.params:
        return lambda call: call.params[value]
    if tag == "l" and isinstance(value, list):
        return _list([_argument(node, each, depth + 1) for each in value])
    if tag == "c" and (value is None or isinstance(value, int | float | str)):
        plain = float_of(value) if isinstance(value, str) and value in NON_FINITE else value
        return _constant(plain)
    if tag == "dtype" and isinstance(value, str):
        return _constant(dtype_of(value))
    if tag == "device":
        return lambda call: call.device
    if tag == "layout":
        return _constant(torch.strided)
    if tag == "memory_format":
        word = str(value).removeprefix("torch.").removesuffix("_format")
        known = _MEMORY_FORMATS.get(word)
        return _constant(None if known is None else getattr(torch, known))
    raise refuse(node, f"its source holds {str(item)[:60]}, which is no argument")


def _constant(value: Any) -> Make:
    return lambda call: value  # noqa: ARG005


def _list(items: Sequence[Make]) -> Make:
    return lambda call: [make(call) for make in items]


def _set_gates(names: Sequence[str], given: list[Make], keyed: dict[str, Make]) -> None:
    """Flags that were right at the moment of the export follow the module's mode."""
    places = {name: place for place, name in enumerate(names[: len(given)])}

    def find(name: str) -> Make | None:
        return given[places[name]] if name in places else keyed.get(name)

    def put(name: str, make: Make) -> None:
        if name in places:
            given[places[name]] = make
        else:
            keyed[name] = make

    statistics = find("running_mean") if "running_mean" in names else None

    def trains(call: Call) -> bool:
        # Without kept statistics, those of the batch are the only ones.
        none = "running_mean" in names and (statistics is None or statistics(call) is None)
        return call.training or none

    for name in _GATES:
        if find(name) is not None:
            put(name, trains)
    share = find(_GATED_SHARE)
    if share is not None and _GATED_SHARE in names:
        put(_GATED_SHARE, lambda call: share(call) if call.training else 0.0)
