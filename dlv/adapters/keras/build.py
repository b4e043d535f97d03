"""A Keras model while it is written: layers, what flows between them, and their weights.

Keras keeps the channels last, and only that runs on all its backends. A value of the network
with its channels first may therefore stand in either order; it is turned where it must be.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, NoReturn

import numpy as np

from dlv.adapters.checkpoint import Tensor
from dlv.dataclass import dataclass
from dlv.dtypes import DTYPES, ITEM_BYTES
from dlv.errors import UsageError
from dlv.kinds import Array
from dlv.network.graph import Network, Node, Port
from dlv.network.ops.op import NotRunnable, Run, op_of
from dlv.network.sizes import Dim, Shape

# Parts of names become names of parameters in torch, which take no dot.
_NAME = re.compile(r"[^A-Za-z0-9_>-]")
OPS = "keras.src.ops.numpy"
NN = "keras.src.ops.nn"
CORE = "keras.src.ops.core"
MATH = "keras.src.ops.math"

Weights = Mapping[str, Sequence[Tensor]]  # group below the layer's -> its variables


@dataclass(frozen=True)
class Out:
    """A result of one call of a layer."""

    layer: str
    call: int
    shape: Shape | None
    tensor: int = 0

    def as_json(self) -> dict[str, Any]:
        if self.shape is None:
            raise UsageError(
                f"Keras cannot express what comes out of {self.layer!r}",
                why="the shape of its output is unknown",
                hint="export to .pt or .onnx, which support more",
            )
        dims = [n if isinstance(n, int) else None for n in self.shape]
        config = {
            "shape": dims,
            "dtype": "float32",
            "keras_history": [self.layer, self.call, self.tensor],
        }
        return {"class_name": "__keras_tensor__", "config": config}


@dataclass
class Held:
    """A value as the network has it, or with its second axis moved to the end."""

    plain: Out | None = None
    last: Out | None = None


@dataclass
class Written:
    """A layer, or a function of keras.ops, with all its calls."""

    module: str
    kind: str
    config: dict[str, Any]
    calls: list[tuple[list[Any], dict[str, Any]]] = field(default_factory=list)
    weights: Weights = field(default_factory=dict)
    parents: list[list[tuple[str, int]]] = field(default_factory=list)  # what each call needs

    @property
    def name(self) -> str:
        return str(self.config["name"])

    @property
    def is_layer(self) -> bool:
        return self.module == "keras.layers"


def refuse(node: Node, why: str) -> NoReturn:
    raise UsageError(
        f"Keras cannot express the node {node.name!r}",
        why=f"{node.op}{f' {node.variant}' if node.variant else ''}: {why}",
        hint="export to .pt or .onnx, which support more",
    )


class Model:
    """The layers so far, and where each port of the network stands."""

    def __init__(
        self,
        network: Network,
        tensors: Sequence[Tensor],
        constants: Sequence[Tensor],
        shapes: Mapping[str, Sequence[Shape | None]],
    ) -> None:
        self.network = network
        self.constants = {tensor.name: tensor for tensor in constants}
        self.tensors = {tensor.name: tensor for tensor in tensors}
        self.shapes = shapes
        self.layers: dict[str, Written] = {}
        self.values: dict[Port, Held] = {}
        self.arrays: dict[Port, Array] = {}  # what is worked out while the model is written
        self.notes: list[str] = []
        self.shared: dict[Any, str] = {}
        self.renamed: list[str] = []
        self.dotted = False
        kinds = [
            t.dtype for t in tensors if t.dtype in ("float16", "bfloat16", "float64", "float32")
        ]
        self.dtype = max(set(kinds), key=kinds.count) if kinds else "float32"

    # Values

    def shape(self, port: Port) -> Shape | None:
        shapes = self.shapes.get(port[0], ())
        return shapes[port[1]] if port[1] < len(shapes) else None

    def known_shape(self, node: Node, port: Port) -> Shape:
        shape = self.shape(port)
        if shape is None:
            refuse(node, "the shape of its input is unknown")
        return shape

    def plain(self, port: Port) -> Out:
        held = self.values[port]
        if held.plain is None:
            assert held.last is not None
            rank = len(held.last.shape or ())
            order = [rank - 1, *range(1, rank - 1)]
            held.plain = self._turned(held.last, order, "channels_first", self.shape(port))
        return held.plain

    def last(self, node: Node, port: Port) -> Out:
        held = self.values[port]
        if held.last is None:
            shape = self.known_shape(node, port)
            order = [*range(2, len(shape)), 1]
            turned = (shape[0], *shape[2:], shape[1])
            held.last = self._turned(self.plain(port), order, "channels_last", turned)
        return held.last

    def _turned(self, out: Out, order: Sequence[int], word: str, shape: Shape | None) -> Out:
        config = {"dims": list(order)}
        return self.layer("Permute", f"{out.layer}.{word}", config, [out], shape)

    # Layers

    def free(self, name: str) -> str:
        wanted = _NAME.sub("_", name)
        wanted = wanted if wanted[:1].isalnum() else f"n{wanted}"
        if wanted != name.replace(".", "_"):
            self.renamed.append(name)
        self.dotted |= "." in name
        free, number = wanted, 0
        while free in self.layers:
            number += 1
            free = f"{wanted}_{number}"
        return free

    def layer(
        self,
        kind: str,
        name: str,
        config: Mapping[str, Any],
        inputs: Sequence[Out],
        shape: Shape | None,
        *,
        weights: Weights | None = None,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        share: Any = None,
        own: bool = False,
    ) -> Out:
        """One call; layers of one `share` are one layer called again."""
        given = [out.as_json() for out in inputs] if args is None else list(args)
        known = self.shared.get(share) if share is not None else None
        if known is None:
            dtype = self.dtype
            for held in (weights or {}).values():
                dtype = next((tensor.dtype for tensor in held), dtype)
            # What a layer says of itself is all that it takes: some take no `trainable`.
            usual = {} if own else {"trainable": True, "dtype": _policy(dtype)}
            made = {"name": self.free(name), **usual, **config}
            known = made["name"]
            self.layers[known] = Written("keras.layers", kind, made, weights=weights or {})
            if share is not None:
                self.shared[share] = known
        return self._call(known, given, dict(kwargs or {}), inputs, shape)

    def op(
        self,
        module: str,
        kind: str,
        name: str,
        config: Mapping[str, Any],
        args: Sequence[Any],
        shape: Shape | None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        parents: Sequence[Out] = (),
    ) -> Out:
        """A function of keras.ops; arguments are `Out`s or plain values."""
        own = self.free(name)
        self.layers[own] = Written(module, kind, {"name": own, **config})
        given = [each.as_json() if isinstance(each, Out) else each for each in args]
        inputs = [*parents, *(each for each in args if isinstance(each, Out))]
        return self._call(own, given, dict(kwargs or {}), inputs, shape)

    def layer_of(
        self, node: Node, kind: str, config: Mapping[str, Any], inputs: Sequence[Out]
    ) -> Held:
        """The layer that a node becomes, under the node's name."""
        shape = self.shape((node.name, 0))
        return Held(plain=self.layer(kind, node.name, config, inputs, shape))

    def op_of(
        self,
        node: Node,
        function: tuple[str, str],
        config: Mapping[str, Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None = None,
    ) -> Held:
        """The function of keras.ops, (module, name), that a node becomes, under its name."""
        shape = self.shape((node.name, 0))
        return Held(plain=self.op(*function, node.name, config, args, shape, kwargs))

    def _call(
        self,
        name: str,
        args: list[Any],
        kwargs: dict[str, Any],
        inputs: Sequence[Out],
        shape: Shape | None,
    ) -> Out:
        made = self.layers[name]
        made.calls.append((args, kwargs))
        made.parents.append([(out.layer, out.call) for out in inputs])
        return Out(name, len(made.calls) - 1, shape)

    def input(self, name: str, shape: Shape, dtype: str) -> None:
        own = self.free(name)
        dims = [n if isinstance(n, int) else None for n in shape]
        config = {"batch_shape": dims, "dtype": dtype, "sparse": False, "ragged": False}
        self.layers[own] = Written("keras.layers", "InputLayer", {**config, "name": own})
        self.values[name, 0] = Held(plain=Out(own, 0, shape))

    # Weights

    def tensor(self, node: Node, slot: str) -> Tensor:
        name = node.params.get(slot)
        if name is None:
            refuse(node, f"no tensor is named for the slot {slot!r}")
        kept = self.network.aliases.get(name, name)
        found = self.tensors.get(name) or self.tensors.get(kept)
        if found is None:
            refuse(node, f"its tensor {name!r} is not stored")
        return found

    def constant(self, node: Node, name: str) -> Tensor:
        found = self.constants.get(name)
        if found is None:
            refuse(node, f"the constant {name!r} is not stored")
        return found

    # Constants

    def array(self, port: Port) -> Array | None:
        """What is there, where it depends on no input."""
        if port not in self.arrays and port[0] in self.network.constants:
            tensor = self.constants.get(port[0])
            if tensor is not None and tensor.dtype in _INLINE_DTYPES:
                numbers = np.frombuffer(tensor.read(), f"<{DTYPES[tensor.dtype].numpy}")
                self.arrays[port] = numbers.reshape(tensor.shape)
        return self.arrays.get(port)

    def fold(self, node: Node) -> bool:
        """Work out a node that depends on no input; False where it does, or numpy cannot."""
        arrays = [self.array(port) for port in node.inputs]
        found = [each for each in arrays if each is not None]
        if len(found) < len(arrays) or node.params or op_of(node).placeholder:
            return False
        try:
            outputs = op_of(node).forward(node, Run(found, {}, {}, dtype="float32"))
        except NotRunnable:
            return False
        self.arrays.update({(node.name, place): each for place, each in enumerate(outputs)})
        return True

    def side(self, node: Node, port: Port) -> Any:
        """A tensor as an argument of a function: what a layer gives, or a constant's numbers."""
        array = self.array(port)
        if array is None:
            if port[0] in self.network.constants:
                self.constant(node, port[0])
                refuse(node, f"its input {port[0]!r} is a constant of another dtype")
            return self.plain(port)
        return inline_array(node, array, port[0])

    def bias(self, node: Node) -> list[Tensor]:
        return [self.tensor(node, "bias")] if node.attrs["bias"] else []


def _policy(dtype: str) -> dict[str, Any]:
    return {
        "module": "keras",
        "class_name": "DTypePolicy",
        "config": {"name": dtype},
        "registered_name": None,
    }


def arranged(tensor: Tensor, order: Sequence[int], shape: Sequence[int] | None = None) -> Tensor:
    """The tensor with its axes in another order, then perhaps under another shape."""
    sides = [tensor.shape[axis] for axis in order]
    after = tuple(sides if shape is None else shape)

    def read() -> bytes:
        given = np.frombuffer(tensor.read(), f"V{ITEM_BYTES[tensor.dtype]}")
        return given.reshape(tensor.shape).transpose(order).tobytes()

    assert math.prod(after) == tensor.elements
    return Tensor(tensor.name, tensor.dtype, after, tensor.nbytes, read)


def length(dim: Dim) -> int | None:
    return dim if isinstance(dim, int) else None


MOST_INLINE = 1 << 16
_MOST_FLAGS = 1 << 20
_INLINE_DTYPES = ("float32", "float64", "int64", "int32", "bool")


def inline_array(node: Node, array: Array, name: str) -> dict[str, Any]:
    """A small tensor within the configuration, as Keras writes arrays."""
    most = _MOST_FLAGS if array.dtype == bool else MOST_INLINE
    if array.size > most or str(array.dtype) not in _INLINE_DTYPES:
        refuse(node, f"the tensor {name!r} of {array.size} elements is a constant")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        refuse(node, f"the constant {name!r} holds what is not finite")
    config = {"value": array.tolist(), "dtype": str(array.dtype)}
    return {"class_name": "__numpy__", "config": config}


Write = Callable[[Model, Node], Held]


def held(out: Out, first: bool) -> Held:
    return Held(last=out) if first else Held(plain=out)


def channels_last(shape: Shape | None, first: bool) -> Shape | None:
    """The shape of an output as it stands with its channels last."""
    if shape is None or not first:
        return shape
    return (shape[0], *shape[2:], shape[1])


def sharing_key(node: Node) -> Any:
    """Nodes of equal settings over the same tensors are one layer, called several times."""
    settings = tuple(sorted((key, repr(value)) for key, value in node.attrs.items()))
    params = tuple(sorted(node.params.items()))
    return (node.op, node.variant, settings, params) if params else None
