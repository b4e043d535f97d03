"""ONNX's own backend tests, run through every way in which dlv computes an imported model.

The cases are those of the onnx package: operators one by one (node), small graphs (simple), and
what torch exported in 2017 (pytorch-converted, pytorch-operator).
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
import torch
from onnx import numpy_helper

import dlv.evaluation.engines as engines
from dlv.adapters.checkpoint import Checkpoint
from dlv.adapters.onnx.writer import save_network
from dlv.errors import DlvError
from dlv.network.agreement import distance, tolerance
from dlv.network.graph import Network, Port
from dlv.network.program import program
from dlv.network.torch.module import build
from dlv.weights.arrays import to_array, to_torch
from tests.onnx_reading import opened
from tests.onnx_runs import session

Array = np.ndarray[Any, Any]
DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
FORMS = ("inputs", "rest stored", "all stored")
WAYS = ("numpy", "torch", "torch float32", "onnxruntime", "module", "export")
# onnx's names of narrow floats, as numpy has them by another package.
_NARROW = ("bfloat16", "float8", "float4", "float6e")


@dataclass(frozen=True)
class Case:
    kind: str
    name: str
    model: onnx.ModelProto
    inputs: Mapping[str, Any]
    wanted: Sequence[Any]
    rtol: float


@dataclass(frozen=True)
class Outcome:
    """`word`: equal, refused, wrong or traceback; refused by whom, and why."""

    word: str
    why: str = ""


def cases() -> Iterator[Case]:
    """Every case of the package; those whose model would have to be fetched are left out."""
    yield from _made()
    for kind in ("pytorch-converted", "pytorch-operator", "simple"):
        for folder in sorted((DATA / kind).iterdir()):
            if (folder / "model.onnx").exists():
                yield _stored(kind, folder)


@cache
def _nodes() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case import model
        from onnx.backend.test.case.node import collect_testcases

        return [*collect_testcases(None), *model.collect_testcases()]


def _made() -> Iterator[Case]:
    for each in _nodes():
        if each.model is None or not each.data_sets:
            continue
        inputs, wanted = ([_array_of(x) for x in side] for side in each.data_sets[0])
        names = [item.name for item in each.model.graph.input]
        given = dict(zip(names, inputs, strict=False))
        yield Case(each.kind, each.name, each.model, given, wanted, each.rtol)


def _array_of(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _stored(kind: str, folder: Path) -> Case:
    model = onnx.load(folder / "model.onnx")
    held = {item.name for item in model.graph.initializer}
    inputs = [item for item in model.graph.input if item.name not in held]
    data = folder / "test_data_set_0"
    given = {item.name: _read(data / f"input_{n}.pb", item) for n, item in enumerate(inputs)}
    outputs = enumerate(model.graph.output)
    wanted = [_read(data / f"output_{n}.pb", item) for n, item in outputs]
    return Case(kind, folder.name, model, given, wanted, 1e-3)


def _read(path: Path, item: onnx.ValueInfoProto) -> Any:
    word = item.type.WhichOneof("value")
    raw = path.read_bytes()
    if word == "sequence_type":
        sequence = onnx.SequenceProto()
        sequence.ParseFromString(raw)
        return numpy_helper.to_list(sequence)
    if word == "optional_type":
        optional = onnx.OptionalProto()
        optional.ParseFromString(raw)
        return numpy_helper.to_optional(optional)
    tensor = onnx.TensorProto()
    tensor.ParseFromString(raw)
    return numpy_helper.to_array(tensor)


def formed(case: Case, form: str) -> Case | None:
    """The case with inputs as initializers; None where there is nothing to store."""
    if form == FORMS[0]:
        return case
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    start = 1 if form == FORMS[1] else 0
    kept = list(case.inputs)[:start]
    moved = [name for name in case.inputs if name not in kept]
    if not moved or not all(isinstance(case.inputs[name], np.ndarray) for name in moved):
        return None
    tensors = {item.name: item for item in case.model.graph.input}
    if any(tensors[name].type.WhichOneof("value") != "tensor_type" for name in moved):
        return None
    remaining = [item for item in model.graph.input if item.name not in moved]
    del model.graph.input[:]
    model.graph.input.extend(remaining)
    for name in moved:
        model.graph.initializer.append(numpy_helper.from_array(case.inputs[name], name))
    return replace(case, model=model, inputs={name: case.inputs[name] for name in kept})


def outcomes(case: Case, folder: Path, ways: Sequence[str] = WAYS) -> dict[str, Outcome]:
    """What each way makes of the case; `import` where the file is refused."""
    try:
        with opened(case.model, folder) as checkpoint:
            if checkpoint.network is None:
                return {"import": Outcome("refused", "without a network")}
            return {way: _outcome(WAY[way], case, checkpoint) for way in ways}
    except DlvError as error:
        return {"import": Outcome("refused", error.message)}
    except Exception as error:  # what no user should see
        return {"import": Outcome("traceback", f"{type(error).__name__}: {error}")}


Way = Callable[[Case, Checkpoint], list[Any]]


class Unrunnable(Exception):
    """The program that is asked for cannot run it; dlv is not to blame."""


def _outcome(way: Way, case: Case, checkpoint: Checkpoint) -> Outcome:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = way(case, checkpoint)
    except DlvError as error:
        return Outcome("refused", error.message + (f": {error.why}" if error.why else ""))
    except Unrunnable as error:
        return Outcome("refused", str(error))
    except Exception as error:
        return Outcome("traceback", f"{type(error).__name__}: {error}")
    fault = unlike(got, _in_float32(case) if way in _FLOAT32 else case)
    return Outcome("wrong", fault) if fault else Outcome("equal")


def _in_float32(case: Case) -> Case:
    """What is too large for float32 is infinite in an engine that computes in it."""
    with np.errstate(over="ignore"):
        wanted = [
            x.astype(np.float32) if isinstance(x, np.ndarray) and x.dtype == np.float64 else x
            for x in case.wanted
        ]
    return replace(case, wanted=wanted)


# What a reason for a refusal says -> how it is counted.
_REASONS = {
    "outside the vocabulary": "an operator that numpy does not run",
    "of the dialect onnx cannot be run in torch": "an operator that torch does not run",
    "has no numbers": "numbers of two, four or six bits",
    "has no dtype": "numbers of two, four or six bits",
    "the input is": "sequences and optional inputs",
    "is not asked to run": "what onnxruntime draws, or computes otherwise than ONNX says",
    "ONNXRuntimeError": "onnxruntime cannot run it",
    "torch": "torch cannot run it",
    "the rank of": "the rank of an input is unknown",
    "has no form in": "written in another way since",
    "written in another way": "written in another way since",
    "draws random": "random numbers",
    "neither onnxruntime nor onnx": "the original is run by nothing",
}


def reason(outcome: Outcome) -> str:
    """The outcome as the table counts it."""
    if outcome.word != "refused":
        return outcome.word
    found = (short for text, short in _REASONS.items() if text in outcome.why)
    return f"refused: {next(found, 'something else')}"


def unlike(got: Sequence[Any], case: Case) -> str:
    """What is wrong with what came out; empty: nothing."""
    if len(got) != len(case.wanted):
        return f"{len(got)} outputs instead of {len(case.wanted)}"
    for place, (a, b) in enumerate(zip(got, case.wanted, strict=True)):
        if a is None or b is None or isinstance(a, list) or isinstance(b, list):
            pairs = zip(a or [], b or [], strict=False)
            if len(a or []) != len(b or []) or any(_far(x, y, case) for x, y in pairs):
                return f"output {place} is another sequence"
            continue
        fault = _far(np.asarray(a), np.asarray(b), case)
        if fault:
            return f"output {place} {fault}"
    return ""


def _far(a: Array, b: Array, case: Case) -> str:
    if a.dtype.kind in "OSU" or b.dtype.kind in "OSU":
        a, b = a.astype(str), b.astype(str)
    size = distance(a, b)
    if size > max(tolerance(str(b.dtype)), case.rtol if b.dtype.kind not in "biu" else 0.0):
        return f"is {a.dtype}{list(a.shape)}, off by {size:.2g}, not {b.dtype}{list(b.shape)}"
    return ""


def _plain(value: Any) -> Any:
    """As users would hand it in: narrow floats are float32."""
    if isinstance(value, list):
        raise Unrunnable("the input is a sequence")
    if value is None:
        raise Unrunnable("the input is optional")
    value = np.asarray(value)
    return value.astype(np.float32) if value.dtype.name.startswith(_NARROW) else value


def _by(name: str, precision: str) -> Way:
    def way(case: Case, checkpoint: Checkpoint) -> list[Any]:
        network = checkpoint.network
        assert network is not None
        held = {t.name: t for t in [*checkpoint.constants, *checkpoint.tensors]}

        def tensor(wanted: str) -> Array:
            item = held[network.aliases.get(wanted, wanted)]
            return to_array(item.dtype, item.shape, item.read())

        shapes = {t.name: (t.dtype, t.shape) for t in held.values()}
        given = {key: _plain(value) for key, value in case.inputs.items()}
        return [
            _one(name, precision, network, port, tensor, shapes, given) for port in network.outputs
        ]

    return way


def _one(
    name: str,
    precision: str,
    network: Network,
    port: Port,
    tensor: Any,
    shapes: Any,
    given: Mapping[str, Array],
) -> Any:
    cut = replace(network, outputs=(port,))
    until = [port[0]] if port[0] in network and port[1] == 0 else []
    made = program(cut, shapes, until=until)
    engine = engines.engine(name, made, tensor, precision)
    return engine.values(given)[made.kept[port[0]] if until else made.scores]


def _module(case: Case, checkpoint: Checkpoint) -> list[Any]:
    """What `version.module()` gives, with every tensor as it was stored."""
    network = checkpoint.network
    assert network is not None
    tensors = {t.name: to_torch(t.dtype, t.shape, t.read()) for t in checkpoint.tensors}
    constants = {t.name: to_torch(t.dtype, t.shape, t.read()) for t in checkpoint.constants}
    module = build(network, tensors, constants).eval()
    given = {key: _tensor(value) for key, value in case.inputs.items()}
    with torch.no_grad():
        try:
            found = module(**given)
        except DlvError:
            raise
        except Exception as error:  # torch's own words
            raise Unrunnable(f"torch: {type(error).__name__}: {error}") from error
    outputs = found if len(network.outputs) > 1 else (found,)
    return [_array(each) for each in outputs]


def _tensor(value: Any) -> torch.Tensor:
    if value is None or isinstance(value, list):
        raise Unrunnable("the input is no tensor")
    value = np.asarray(value)
    if value.dtype.name == "bfloat16":
        return torch.from_numpy(value.view(np.int16).copy()).view(torch.bfloat16)
    try:
        return torch.from_numpy(np.array(value))
    except TypeError as error:
        raise Unrunnable(f"torch: {error}") from error


def _array(value: Any) -> Array:
    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    value = value.detach()
    narrow = value.dtype not in _TORCH_IN_NUMPY
    found: Array = (value.float() if narrow else value).numpy()
    return found


_TORCH_IN_NUMPY = {
    *(torch.bool, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.float16),
    *(torch.uint16, torch.uint32, torch.uint64, torch.float32, torch.float64),
    *(torch.complex64, torch.complex128),
}


def _export(case: Case, checkpoint: Checkpoint) -> list[Any]:
    """What `dlv export` writes: sound, and run by onnxruntime, else by onnx itself."""
    network = checkpoint.network
    assert network is not None
    out = io.BytesIO()
    save_network(out, network, checkpoint.tensors, checkpoint.constants)
    data = out.getvalue()
    if _sound(case.model):
        onnx.checker.check_model(data, full_check=True)
    given = dict(case.inputs)
    if any(node.op_type in _RANDOM for node in case.model.graph.node):
        raise Unrunnable("it draws random numbers")
    if _right(case, lambda: session(case.model.SerializeToString()).run(None, given)):
        made = session(data)
    elif _right(case, lambda: onnx.reference.ReferenceEvaluator(case.model).run(None, given)):
        made = onnx.reference.ReferenceEvaluator(onnx.load_from_string(data))
        found: list[Any] = made.run(None, given)
        return found
    else:
        raise Unrunnable("neither onnxruntime nor onnx gives the numbers for the original")
    names = [item.name for item in made.get_inputs()]
    feeds = {name: given[item.name] for name, item in zip(names, network.inputs, strict=True)}
    ran: list[Any] = made.run(None, feeds)
    return ran


_RANDOM = ("Bernoulli", "RandomUniformLike", "RandomNormalLike")


def _sound(model: onnx.ModelProto) -> bool:
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception:  # of two classes
        return False
    return True


def _right(case: Case, run: Callable[[], list[Any]]) -> bool:
    """Whether a runtime gives for the original model what the case wants."""
    try:
        return not unlike(run(), case)
    except Exception:  # of many classes
        return False


WAY: dict[str, Way] = {
    "numpy": _by("numpy", "float64"),
    "torch": _by("torch", "float64"),
    "torch float32": _by("torch", "float32"),
    "onnxruntime": _by("onnxruntime", "float32"),
    "module": _module,
    "export": _export,
}
_FLOAT32 = (WAY["torch float32"], WAY["onnxruntime"])
