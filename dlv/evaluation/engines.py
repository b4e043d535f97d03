"""What computes the scores of a program: dlv itself by numpy, or torch or onnxruntime.

All of them give the same up to rounding. torch and onnxruntime run operations outside dlv's
vocabulary, too; the exported calls of torch are run by torch alone.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import dlv.processors as processors
from dlv.adapters.checkpoint import Beside, Tensor
from dlv.errors import UsageError, nearest, require
from dlv.kinds import Array
from dlv.network.forward import Forward, sizes_of
from dlv.network.graph import Network, Node, Port
from dlv.network.ops.op import NotRunnable, op_of, title
from dlv.network.program import Program
from dlv.weights.arrays import to_array

_RANDOM = frozenset(
    ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial")
)
# What it gives for floats that Python's arrays have no type for: their bits.
_NARROW = {
    "tensor(bfloat16)": "bfloat16",
    "tensor(float8e4m3fn)": "float8_e4m3",
    "tensor(float8e4m3fnuz)": "float8_e4m3fnuz",
    "tensor(float8e5m2)": "float8_e5m2",
    "tensor(float8e5m2fnuz)": "float8_e5m2fnuz",
}


def widened(outputs: list[Array], types: list[str]) -> list[Array]:
    """Floats of 8 bits, and bfloat16, as the numbers that they are."""
    return [
        to_array(_NARROW[type_], x.shape, x.tobytes())
        if type_ in _NARROW and x.dtype.kind == "u"
        else x
        for x, type_ in zip(outputs, types, strict=True)
    ]


def check_runtime(network: Network, constant: Callable[[str], Array]) -> None:
    """UsageError for what two runs answer in two ways, or onnxruntime otherwise than ONNX says."""
    for node in network.nodes:
        source = node.source or {}
        if not op_of(node).raw or source.get("dialect") != "onnx":
            continue
        why = _doubt(node, source, network, constant)
        if why is not None:
            raise UsageError(
                f"onnxruntime is not asked to run {source.get('op')} `{node.name}`",
                why=why,
                hint="dlv export writes the network as ONNX, for a runtime of yours",
            )


def _doubt(
    node: Node, source: Mapping[str, Any], network: Network, constant: Callable[[str], Array]
) -> str | None:
    kind, args, kwargs = source.get("op"), source.get("args", []), source.get("kwargs", {})
    if kind in _RANDOM or kind == "Bernoulli":
        return "it draws random numbers: every run gives another answer"
    if kind == "CastLike":
        return "it takes over the dtype of a tensor, and here all floats are of one dtype"
    if kind == "Dropout" and _given(args, 2):
        return "it drops at random, as in training"
    if kind == "BatchNormalization" and _value(kwargs, "training_mode"):
        return "it is in training: it normalizes by the batch"
    if kind == "MaxUnpool" and _given(args, 2):
        return "onnxruntime reads the places of the maxima by another shape than ONNX says"
    if kind == "Attention" and source.get("outputs", 1) > 3 and _value(kwargs, "is_causal"):
        return "onnxruntime masks the products that it gives with other numbers than ONNX says"
    if kind == "Resize" and _value(kwargs, "coordinate_transformation_mode") == "align_corners":
        name = _constant(node, args, network)
        if not _given(args, 3) and (name is None or np.any(np.mod(constant(name), 1))):
            return "onnxruntime rounds lengths before it aligns corners; ONNX does not"
    return None


def _given(args: list[Any], place: int) -> bool:
    return place < len(args) and args[place] != {"c": None}


def _value(kwargs: Mapping[str, Any], name: str) -> Any:
    found = kwargs.get(name)
    return found.get("c") if isinstance(found, Mapping) else None


def _constant(node: Node, args: list[Any], network: Network) -> str | None:
    """The constant that holds the factors of a Resize."""
    told = args[2] if len(args) > 2 else None
    place = told.get("n") if isinstance(told, Mapping) else None
    name = node.inputs[place][0] if type(place) is int and place < len(node.inputs) else None
    return name if name in network.constants else None


TensorOf = Callable[[str], Array]

ENGINES = ("numpy", "torch", "onnxruntime")
_PRECISIONS = ("float64", "float32")
_NARROWER = ("float32", "float16", "bfloat16")
_MOST_IN_MEMORY = 1 << 30  # a larger model is written beside its tensors, which are mapped


class Engine(Protocol):
    """A program with its tensors at hand; called once per batch."""

    @property
    def name(self) -> str:
        """The engine that runs."""

    def scores(self, inputs: Mapping[str, Array]) -> Array:
        """The scores of a batch."""

    def values(self, inputs: Mapping[str, Array]) -> Mapping[Port, Array]:
        """The scores, and what the program was asked to keep, by where they are known."""


def engine(
    name: str | None, program: Program, tensor: TensorOf, precision: str = "float64"
) -> Engine:
    """The engine of that name, or the first that can; `tensor` gives a tensor or constant."""
    if name is not None and name not in ENGINES:
        raise UsageError(f"no engine `{name}`", did_you_mean=nearest(name, ENGINES))
    if precision not in _PRECISIONS:
        raise UsageError(
            f"no precision `{precision}`", did_you_mean=nearest(precision, _PRECISIONS)
        )
    if name is None:
        return FirstThatRuns(program, tensor, precision)
    if name == "torch":
        return Torch(program, tensor, precision)
    if name == "onnxruntime":
        return OnnxRuntime(program, tensor, precision)
    return Numpy(program, tensor, precision)


class FirstThatRuns:
    """dlv itself; where it has no form of a layer, what knows that layer's operation."""

    def __init__(self, program: Program, tensor: TensorOf, precision: str) -> None:
        self._running: Engine = Numpy(program, tensor, precision)
        self._given = program, tensor, precision
        self._begun = False
        self.why: str | None = None  # another engine runs

    @property
    def name(self) -> str:
        return self._running.name

    def scores(self, inputs: Mapping[str, Array]) -> Array:
        return self.values(inputs)[self._given[0].scores]

    def values(self, inputs: Mapping[str, Array]) -> Mapping[Port, Array]:
        try:
            values = self._running.values(inputs)
        except NotRunnable as error:
            program, _, precision = self._given
            other = _runner_of(program, precision)
            # One version is tested by one engine: its first batch tells which.
            if self._begun or other is None:
                raise
            self._running = engine(other, *self._given)
            self.why = f"numpy cannot run layer {title(error.node)}"
            values = self._running.values(inputs)
        self._begun = True
        return values


def _runner_of(program: Program, precision: str) -> str | None:
    """The engine, if it is installed, that runs a program's operations outside the vocabulary."""
    nodes = [step.node for step in program.steps if op_of(step.node).raw]
    dialects = {(node.source or {}).get("dialect") for node in nodes}
    if dialects == {"aten"} and find_spec("torch"):
        return "torch"
    if dialects == {"onnx"} and precision == "float32" and find_spec("onnxruntime"):
        return "onnxruntime"
    return None


class Numpy:
    """dlv itself."""

    name = "numpy"

    def __init__(self, program: Program, tensor: TensorOf, precision: str) -> None:
        self._forward = Forward(program, tensor, precision)

    def scores(self, inputs: Mapping[str, Array]) -> Array:
        return self._forward(inputs)

    def values(self, inputs: Mapping[str, Array]) -> Mapping[Port, Array]:
        return self._forward.values(inputs)


class _Other:
    """An engine that is handed a whole network, cut to what is wanted of it."""

    name: str

    def __init__(self, program: Program, tensor: TensorOf, precision: str) -> None:
        self.dtype = np.dtype(precision)
        self.scored = program.scores
        self.ports = tuple(dict.fromkeys([program.scores, *program.kept.values()]))
        self.network = program.network.part(self.ports)
        self.program = program
        self.tensor = tensor

    def scores(self, inputs: Mapping[str, Array]) -> Array:
        return self.values(inputs)[self.scored]

    def values(self, inputs: Mapping[str, Array]) -> Mapping[Port, Array]:
        sizes_of(self.program.network, inputs)
        given = {name: self.of_dtype(np.asarray(inputs[name])) for name in self.program.input_names}
        return dict(zip(self.ports, self.run(given), strict=True))

    def run(self, inputs: Mapping[str, Array]) -> Sequence[Array]:
        raise NotImplementedError

    def of_dtype(self, x: Array) -> Array:
        """Floats in the precision of the run."""
        return x.astype(self.dtype, copy=False) if x.dtype.kind == "f" else x

    def held(self, names: Sequence[str]) -> dict[str, Array]:
        return {name: self.of_dtype(np.asarray(self.tensor(name))) for name in names}


def in_float64(network: Network) -> Network:
    """Where a narrower float is named, float64: what is computed has one precision."""
    nodes = tuple(
        replace(node, source=_wide(node.source), attrs=_wide(node.attrs)) for node in network.nodes
    )
    return replace(network, nodes=nodes)


def _wide(item: Any) -> Any:
    if isinstance(item, Mapping):
        if isinstance(item.get("dtype"), str) and item["dtype"] in _NARROWER:
            return {**item, "dtype": "float64"}
        return {key: _wide(value) for key, value in item.items()}
    return [_wide(each) for each in item] if isinstance(item, list) else item


def threads() -> int:
    """As many as the user allows, else the processors that are free."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    return max(int(told), 1) if told.isdecimal() else processors.free()


class Torch(_Other):
    """torch, which runs exported operations exactly as they were exported."""

    name = "torch"

    def __init__(self, program: Program, tensor: TensorOf, precision: str) -> None:
        made: Any = require("dlv.network.torch.module", "torch")
        self.torch = made.torch
        super().__init__(program, tensor, precision)
        if precision == "float64":
            self.network = in_float64(self.network)
        tensors = {
            n: self._of(x) for n, x in self.held(sorted(self.network.tensor_names())).items()
        }
        constants = {n: self._of(x) for n, x in self.held(list(self.network.constants)).items()}
        self._module: Any = made.build(self.network, tensors, constants)
        self._module.eval()

    def _of(self, x: Array) -> Any:
        # A copy where it is needed: torch takes no array that may not be written to.
        try:
            return self.torch.from_numpy(np.array(x, order="C"))
        except TypeError as error:
            raise UsageError(f"torch has no tensors of {x.dtype}", why=str(error)) from error

    def run(self, inputs: Mapping[str, Array]) -> Sequence[Array]:
        given = {name: self._of(x) for name, x in inputs.items()}
        with (
            _threads_of(self.torch, threads()),
            _usual_dtype(self.torch, str(self.dtype)),
            self.torch.inference_mode(),
        ):
            try:
                found = self._module(**given)
            except (RuntimeError, TypeError, ValueError, IndexError) as error:
                notes = getattr(error, "__notes__", [])
                raise UsageError(
                    " ".join(["torch cannot run this batch", *notes]), why=str(error).strip()[:300]
                ) from error
        outputs = found if len(self.ports) > 1 else (found,)
        return [self._array(value) for value in outputs]

    def _array(self, value: Any) -> Array:
        """numpy has no types for the narrowest floats."""
        if not isinstance(value, self.torch.Tensor):
            return np.asarray(value)
        value = value.detach()
        narrow = value.is_floating_point() and value.element_size() < 4
        return np.asarray(value.float() if narrow else value)


@contextlib.contextmanager
def _usual_dtype(torch: Any, name: str) -> Iterator[None]:
    """What calls such as zeros(3) make is of the precision of the run, as all else is."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, name))
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def _threads_of(torch: Any, count: int) -> Iterator[None]:
    """The number is torch's own, for the whole process: it is put back."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class OnnxRuntime(_Other):
    """onnxruntime on the processor, through the ONNX file that dlv writes; float32 only."""

    name = "onnxruntime"

    def __init__(self, program: Program, tensor: TensorOf, precision: str) -> None:
        runtime: Any = require("onnxruntime", "onnxruntime")
        if precision != "float32":
            raise UsageError(
                f"onnxruntime computes in float32, not in {precision}",
                why="it has no float64 form of convolution and average pooling on the processor",
                hint="--precision float32, or --engine torch",
            )
        from dlv.adapters.engine_runs import in_memory, session

        super().__init__(program, tensor, precision)
        names = sorted(self.network.tensor_names())
        tensors = [in_memory(name, x) for name, x in self.held(names).items()]
        constants = [in_memory(n, x) for n, x in self.held(list(self.network.constants)).items()]
        check_runtime(self.network, self.tensor)
        # Nodes outside the vocabulary are written, too, where ONNX has a word for them.
        with contextlib.ExitStack() as stack:
            model = _written(self.network, tensors, constants, stack)
            try:
                self._session = session(runtime, model, threads())
            except Exception as error:  # of a class of its own
                raise UsageError(
                    "onnxruntime cannot run this network",
                    why=str(error).strip()[:300],
                    hint="--engine torch",
                ) from error

    def run(self, inputs: Mapping[str, Array]) -> Sequence[Array]:
        names = [item.name for item in self._session.get_inputs()]
        given = [item.name for item in self.network.inputs]
        # The file has its inputs in the network's order; a name that stands twice is changed.
        feeds = {
            name: np.asarray(inputs[own], order="C") for name, own in zip(names, given, strict=True)
        }
        try:
            found: list[Array] = self._session.run(None, feeds)
        except Exception as error:
            raise UsageError(
                "onnxruntime cannot run this batch", why=str(error).strip()[:300]
            ) from error
        return widened(found, [item.type for item in self._session.get_outputs()])


def _written(
    network: Network,
    tensors: Sequence[Tensor],
    constants: Sequence[Tensor],
    stack: contextlib.ExitStack,
) -> bytes | str:
    """The model in memory, or the path of a file that is there until the stack is left."""
    from dlv.adapters.onnx.writer import save_network

    out = io.BytesIO()
    if sum(tensor.nbytes for tensor in (*tensors, *constants)) < _MOST_IN_MEMORY:
        save_network(out, network, tensors, constants)
        return out.getvalue()
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    data = stack.enter_context((folder / "model.data").open("wb"))
    beside = Beside("model.data", lambda: data)
    with (folder / "model.onnx").open("wb") as file:
        save_network(file, network, tensors, constants, beside=beside, most=_MOST_IN_MEMORY)
    data.flush()
    return str(folder / "model.onnx")
