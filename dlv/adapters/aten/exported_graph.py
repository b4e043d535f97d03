"""torch's ExportedProgram as a neutral graph."""

from __future__ import annotations

import operator
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
from dlv.adapters.torch.tensors import DTYPES

_OTHER = "other"


def dtype_name(dtype: Any) -> str:
    """torch.float32 -> float32."""
    there = str(dtype).removeprefix("torch.")
    return DTYPES[there][0] if there in DTYPES else f"raw:{there}"


def fill(torch: Any, program: Any) -> Graph:
    """The graph of an exported program."""
    return _Reader(torch, program).read()


class _Reader:
    def __init__(self, torch: Any, program: Any) -> None:
        self.torch = torch
        self.program = program
        self.graph = Graph()
        self.names: dict[Any, str] = {}  # an fx node -> the value that it is
        self.several: dict[Any, Any] = {}  # an fx node with many values -> their names
        self.inner: dict[Any, Graph] = {}  # an fx node that stands for a graph

    def read_inner(self, module: Any) -> Graph:
        """The graph that a call is given, such as what runs without gradients."""
        inner = _Reader(self.torch, self.program)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                inner._placeholder(node, None)
            elif node.op in ("get_attr", "call_function"):
                inner._add(node, module)
            elif node.op == "output":
                given = inner._argument(list(node.args[0]))
                inner.graph.outputs = given if isinstance(given, list) else []
        return inner.graph

    def _add(self, node: Any, module: Any) -> None:
        if node.op == "call_function":
            self._call(node)
            return
        held = module
        for part in node.target.split("."):
            held = getattr(held, part)
        if isinstance(held, self.torch.fx.GraphModule):
            self.inner[node] = self.read_inner(held)

    def read(self) -> Graph:
        specs = {spec.arg.name: spec for spec in self.program.graph_signature.input_specs}
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node, specs.get(node.name))
            elif node.op in ("get_attr", "call_function"):
                self._add(node, self.program.graph_module)
        outputs = self.program.graph_signature.user_outputs
        names = {node.name: self.names[node] for node in self.names}
        self.graph.places = [place for place, item in enumerate(outputs) if item in names]
        self.graph.outputs = [Ref(names[outputs[place]]) for place in self.graph.places]
        return self.graph

    def _placeholder(self, node: Any, spec: Any) -> None:
        kind = spec.kind.name if spec is not None else ""
        target = (spec.target if spec is not None else None) or node.name
        sort = {
            "PARAMETER": PARAMETER,
            "BUFFER": BUFFER,
            "CONSTANT_TENSOR": CONSTANT,
            "USER_INPUT": INPUT,
        }.get(kind, _OTHER)
        if sort == BUFFER and spec.persistent is False:
            sort = CONSTANT
        value = node.meta.get("val")
        if sort == INPUT and not isinstance(value, (self.torch.Tensor, self.torch.SymInt)):
            sort = _OTHER
        self.graph.placeholders.append(Placeholder(node.name, sort, target))
        self._value(node.name, value)
        self.names[node] = node.name

    def _call(self, node: Any) -> None:
        if node.target is operator.getitem and node.args[0] in self.several:
            held = self.several[node.args[0]]
            index = node.args[1]
            item = held[index] if isinstance(held, (list, dict)) else None
            if isinstance(item, str):
                self.names[node] = item
            else:
                self.several[node] = item
            return
        value = node.meta.get("val")
        several = isinstance(value, (list, tuple))
        outputs: list[str | None] = []
        if several:
            self.several[node] = self._elements(node.name, value, outputs)
        elif value is not None:
            outputs.append(node.name)
            self._value(node.name, value)
            self.names[node] = node.name
        stack = node.meta.get("nn_module_stack") or {}
        visit, (path, _) = next(reversed(stack.items())) if stack else ("", ("", None))
        self.graph.calls.append(
            Call(
                node.name,
                _target(node.target),
                tuple(self._arguments(node)),
                tuple(outputs),
                several,
                *place(path, visit),
                _written(node.target),
            )
        )

    def _elements(self, name: str, value: Any, outputs: list[str | None]) -> list[Any]:
        """Names for what a tuple holds, lists in it included."""
        found: list[Any] = []
        for index, item in enumerate(value):
            own = f"{name}:{index}"
            if isinstance(item, (list, tuple)):
                found.append(self._elements(own, item, outputs))
            elif item is None:
                outputs.append(None)
                found.append(None)
            else:
                self._value(own, item)
                outputs.append(own)
                found.append(own)
        return found

    def _value(self, name: str, value: Any) -> None:
        if isinstance(value, self.torch.Tensor):
            shape = tuple(_dim(size) for size in value.shape)
            self.graph.values[name] = Value(
                dtype_name(value.dtype), shape, storage=self._storage(value)
            )
        elif isinstance(value, (int, float, self.torch.SymInt)):
            known = _dim(value) if not isinstance(value, (bool, float)) else None
            self.graph.values[name] = Value(None, (known,))
        elif isinstance(value, (self.torch.SymFloat, self.torch.SymBool)):
            self.graph.values[name] = Value(None, (None,))

    def _storage(self, value: Any) -> tuple[int, int] | None:
        try:
            return id(self), value.untyped_storage()._cdata
        except (AttributeError, NotImplementedError, RuntimeError):
            return None

    def _arguments(self, node: Any) -> list[Given]:
        schema = getattr(node.target, "_schema", None)
        names = [] if schema is None else [argument.name for argument in schema.arguments]
        names += [""] * (len(node.args) - len(names))
        found = [
            Given(name, self._argument(value))
            for name, value in zip(names, node.args, strict=False)
        ]
        order = {name: index for index, name in enumerate(names)}
        for name in sorted(node.kwargs, key=lambda name: order.get(name, len(order))):
            found.append(Given(name, self._argument(node.kwargs[name]), True))
        return found

    def _argument(self, value: Any) -> Argument:
        torch = self.torch
        if isinstance(value, torch.fx.Node):
            if value in self.inner:
                return Tagged("graph", self.inner[value])
            if value in self.names and self.names[value] in self.graph.values:
                return Ref(self.names[value])
            return Tagged("text", value.name)
        if isinstance(value, (list, tuple)):
            return [self._argument(item) for item in value]
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, torch.dtype):
            return Tagged("dtype", dtype_name(value))
        if isinstance(value, complex):
            return Tagged("complex", [value.real, value.imag])
        for kind in ("device", "layout", "memory_format"):
            if isinstance(value, getattr(torch, kind)):
                return Tagged(kind, str(value).removeprefix("torch."))
        return Tagged("text", str(value)[:200])


def _target(target: Any) -> str:
    """aten.conv2d.default, operator.mul, higher_order.cond."""
    if hasattr(target, "_schema"):
        return str(target)
    module = str(getattr(target, "__module__", "")).removeprefix("torch.ops.")
    return f"{module.removeprefix('_')}.{getattr(target, '__name__', target)}"


def _written(target: Any) -> tuple[str, ...]:
    """The arguments that an operation changes."""
    schema = getattr(target, "_schema", None)
    given = [] if schema is None else schema.arguments
    return tuple(a.name for a in given if a.alias_info is not None and a.alias_info.is_write)


def _dim(size: Any) -> int | str | None:
    """A length: a number, the name of a symbol, or None for what is computed from some."""
    if type(size) is int:
        return size
    expression = size.node.expr
    if expression.is_Integer:
        return int(expression)
    return str(expression) if expression.is_Symbol else None
