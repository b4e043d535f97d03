"""What dlv makes of a model that somebody brings, column by column.

Each cell is `equal`, `refused: WHY`, `wrong: HOW FAR` or `traceback: WHAT`; a column that the
form before it leaves nothing for is left out.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dlv.evaluation.engines as engines
from dlv.adapters import registry
from dlv.adapters.aten import pt2
from dlv.adapters.aten.live import trace
from dlv.adapters.aten.switches import exportable
from dlv.adapters.checkpoint import Checkpoint, Tensor
from dlv.adapters.engine_runs import in_memory
from dlv.adapters.keras.writer import save_network as write_keras
from dlv.adapters.onnx import files as onnx_files
from dlv.adapters.onnx.writer import save_network as write_onnx
from dlv.adapters.torch import reader as torch_files
from dlv.errors import DlvError
from dlv.network.agreement import distance
from dlv.network.graph import Network
from dlv.network.program import program
from dlv.network.torch.module import build as build_module
from dlv.weights.arrays import to_array, to_torch

Array = np.ndarray[Any, Any]
Row = dict[str, str]
CLOSE = 2e-4  # of float32, over a hundred layers
ENGINES = ("numpy", "torch", "onnxruntime")


@dataclass
class Brought:
    """A network with its tensors at hand, inputs by name, and what the original answers."""

    checkpoint: Checkpoint
    inputs: Mapping[str, Array]
    wanted: Sequence[Array]
    held: Mapping[str, Any] = field(default_factory=dict)

    @property
    def network(self) -> Network:
        assert self.checkpoint.network is not None
        return self.checkpoint.network

    def __post_init__(self) -> None:
        self.held = {t.name: t for t in (*self.checkpoint.constants, *self.checkpoint.tensors)}

    def tensor(self, name: str) -> Array:
        item = self.held[self.network.aliases.get(name, name)]
        return to_array(item.dtype, item.shape, item.read())

    def by(self, engine: str) -> list[Array]:
        """The first output, as `dlv eval` has it."""
        cut = replace(self.network, outputs=(self.network.outputs[0],))
        until = [cut.outputs[0][0]] if cut.outputs[0][0] in cut and not cut.outputs[0][1] else []
        shapes = {t.name: (t.dtype, t.shape) for t in self.held.values()}
        made = program(cut, shapes, until=until)
        ran = engines.engine(engine, made, self.tensor, "float32")
        given = {name: self.inputs[name] for name in made.input_names}
        return [ran.values(given)[made.kept[cut.outputs[0][0]] if until else made.scores]]

    def module(self) -> list[Array]:
        tensors, constants = (
            {t.name: to_torch(t.dtype, t.shape, t.read()) for t in some}
            for some in (self.checkpoint.tensors, self.checkpoint.constants)
        )
        made = build_module(self.network, tensors, constants).eval()
        with torch.no_grad():
            found = made(**{name: torch.from_numpy(x) for name, x in self.inputs.items()})
        return leaves(found)

    def onnx(self) -> list[Array]:
        from tests.onnx_runs import session

        out = io.BytesIO()
        write_onnx(out, self.network, self.checkpoint.tensors, self.checkpoint.constants)
        made = session(out.getvalue())
        names = [item.name for item in made.get_inputs()]
        pairs = zip(names, self.network.inputs, strict=True)
        found: list[Array] = made.run(None, {name: self.inputs[item.name] for name, item in pairs})
        return found

    def keras(self) -> list[Array]:
        import keras

        out = io.BytesIO()
        write_keras(out, self.network, self.checkpoint.tensors, self.checkpoint.constants)
        path = Path(self.folder) / "written.keras"
        path.write_bytes(out.getvalue())
        made = keras.saving.load_model(path, safe_mode=True)
        given = [self.inputs[item.name] for item in self.network.inputs]
        found = made(given if len(given) > 1 else given[0], training=False)
        return [x.detach().numpy() for x in torch.utils._pytree.tree_leaves(found)]

    folder: str = "."


def leaves(value: Any) -> list[Array]:
    found = torch.utils._pytree.tree_leaves(value)
    return [x.detach().numpy() if isinstance(x, torch.Tensor) else np.asarray(x) for x in found]


def outcome(work: Callable[[], Sequence[Array] | None], wanted: Sequence[Array] = ()) -> str:
    """What a piece of work makes, held against what is wanted as far as it gives something."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = work()
    except DlvError as error:
        return f"refused: {_why(error)}"
    except Exception as error:  # what no user should see
        return f"traceback: {type(error).__name__}: {str(error)[:100]}"
    for got, right in zip(found or (), wanted, strict=False):
        far = distance(np.asarray(got), np.asarray(right))
        if got.shape != right.shape or not far <= CLOSE:
            return f"wrong: {far:.1e}"
    return "equal"


def _why(error: DlvError) -> str:
    """Short, and without names of nodes, so that the table stays readable."""
    said = (error.why or error.message).splitlines()[0]
    words = [word for word in said.split() if not word.startswith("`") or "." not in word]
    return " ".join(words)[:60]


def same_bytes(path: Path, kind: str) -> None:
    """The file, and those of its weights, come back; AssertionError is a traceback in the table."""
    adapter = registry.adapter(kind)
    checkpoint = adapter.open(str(path))
    try:
        for name, (skeleton, tensors) in parts_of(checkpoint).items():
            assert skeleton is not None, "no skeleton"
            out = io.BytesIO()
            adapter.restore(out, skeleton, tensors)
            there = path.parent / name if name else path
            assert out.getvalue() == there.read_bytes(), "other bytes"
    finally:
        checkpoint.close()


def parts_of(checkpoint: Checkpoint) -> dict[str, tuple[bytes | None, Sequence[Tensor]]]:
    """Skeletons and tensors of the files that a model comes back as; its own has no name."""
    if checkpoint.apart is None:
        return {"": (checkpoint.skeleton, checkpoint.tensors)}
    beside = {
        each.path: (each.skeleton, [checkpoint.tensors[place] for place in each.tensors])
        for each in checkpoint.apart.companions
    }
    return {"": (checkpoint.apart.skeleton, checkpoint.tensors), **beside}


def tried(module: Any, example: Any, folder: Path) -> Row:
    """A row of the table for a module of torch and inputs for it."""
    torch.set_num_threads(1)
    state = folder / "state.pt"
    torch.save(module.state_dict(), state)
    row: Row = {"bytes": outcome(lambda: same_bytes(state, torch_files.FORMAT))}
    named = example if isinstance(example, Mapping) else {}
    places = () if named else tuple(example)
    module.eval()
    with torch.no_grad(), exportable(module, named):
        wanted = leaves(module(*places, **named))
    if not all(np.isfinite(x).all() for x in wanted if x.dtype.kind == "f"):
        return {**row, "imported": "refused: its own answer is not finite"}
    traced: list[Checkpoint] = []
    row["imported"] = outcome(lambda: traced.append(trace(module, example)))
    if traced:
        row |= _of_network(_brought(module, traced[0], example, wanted), folder)
    with torch.no_grad(), exportable(module, named):
        for exporter in EXPORTERS:
            row |= _of_file(exporter, module, places, named, wanted, folder)
    return row


def _brought(module: Any, checkpoint: Checkpoint, example: Any, wanted: Sequence[Array]) -> Brought:
    tensors = [in_memory(name, x.detach().numpy()) for name, x in module.state_dict().items()]
    assert checkpoint.network is not None
    names = [item.name for item in checkpoint.network.inputs]
    given = example if isinstance(example, Mapping) else dict(zip(names, example, strict=False))
    inputs = {name: np.ascontiguousarray(x.numpy()) for name, x in given.items() if name in names}
    return Brought(replace(checkpoint, tensors=tensors), inputs, wanted)


def _of_network(brought: Brought, folder: Path) -> Row:
    row = {name: outcome(partial(brought.by, name), brought.wanted) for name in ENGINES}
    row["module"] = outcome(brought.module, brought.wanted)
    row["ONNX out"] = outcome(brought.onnx, brought.wanted)
    brought.folder = str(folder)
    row["Keras out"] = outcome(brought.keras, brought.wanted)
    return row


@dataclass(frozen=True)
class Exporter:
    """A way to a file from the module in evaluation, its reader, and what runs the network."""

    column: str
    suffix: str
    format: str
    open: Callable[[str], Checkpoint]
    save: Callable[[Any, Any, dict[str, Any], Path], object]
    engines: Sequence[str] = ("numpy", "onnxruntime")


def _program(module: Any, places: Any, named: dict[str, Any], path: Path) -> None:
    torch.export.save(torch.export.export(module, places, named, strict=False), path)


def _traced(module: Any, places: Any, named: dict[str, Any], path: Path) -> None:
    torch.onnx.export(module, places, path, kwargs=named, dynamo=False)


def _translated(module: Any, places: Any, named: dict[str, Any], path: Path) -> None:
    torch.onnx.export(module, places, path, kwargs=named, dynamo=True, verbose=False)


EXPORTERS = (
    Exporter("pt2", ".pt2", pt2.FORMAT, pt2.open, _program, ("numpy",)),
    Exporter("ONNX", ".onnx", onnx_files.FORMAT, onnx_files.open, _traced),
    Exporter("dynamo", ".onnx", onnx_files.FORMAT, onnx_files.open, _translated),
)


def _of_file(
    exporter: Exporter, module: Any, places: Any, named: Any, wanted: Sequence[Array], folder: Path
) -> Row:
    """Nothing where torch cannot export the module so, or makes a file that is none."""
    path = folder / exporter.column / f"model{exporter.suffix}"
    path.parent.mkdir()
    given = [np.ascontiguousarray(x.numpy()) for x in (*places, *named.values())]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with contextlib.redirect_stdout(io.StringIO()):  # where it fails, whole graphs
                exporter.save(module, places, dict(named), path)
        if path.suffix == onnx_files.SUFFIX:
            wanted = _by_onnxruntime(path, given)  # what it says, its exporter may have changed
    except Exception:  # torch's own, or onnxruntime's
        return {}
    row = {f"{exporter.column} bytes": outcome(lambda: same_bytes(path, exporter.format))}
    for engine in exporter.engines:
        column = exporter.column if engine == "numpy" else f"{exporter.column} by {engine}"
        row[column] = outcome(partial(_numbers, exporter.open, path, engine, given), wanted)
    return row


def _by_onnxruntime(path: Path, given: Sequence[Array]) -> list[Array]:
    from tests.onnx_runs import session

    made = session(str(path))
    names = [item.name for item in made.get_inputs()]
    found: list[Array] = made.run(None, dict(zip(names, _filled(given, len(names)), strict=True)))
    return found


def _filled(given: Sequence[Array], count: int) -> list[Array]:
    """What forward takes besides is an input of a file, too: which answer to keep, the first."""
    return [*given, *[np.zeros((), np.int64)] * (count - len(given))]


def _numbers(
    reader: Callable[[str], Checkpoint], path: Path, engine: str, given: Sequence[Array]
) -> list[Array]:
    checkpoint = reader(str(path))
    try:
        assert checkpoint.network is not None, checkpoint.notes[:1]
        names = [item.name for item in checkpoint.network.inputs]
        inputs = dict(zip(names, _filled(given, len(names)), strict=True))
        return Brought(checkpoint, inputs, ()).by(engine)
    finally:
        checkpoint.close()
