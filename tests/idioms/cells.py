"""One idiom through everything that dlv does with a network, held against the module itself."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch as untyped_torch

import dlv.network.patterns as patterns
import dlv.versions.copying as copying
from dlv.adapters import network_json
from dlv.adapters.aten import live, pt2
from dlv.adapters.aten.live import quiet
from dlv.adapters.checkpoint import Tensor
from dlv.errors import DlvError
from dlv.network import json_form
from dlv.network.edits import edit as editing
from dlv.network.edits import instructions as instructing
from dlv.network.edits import reuse, slicing
from dlv.network.edits.wiring import Wiring
from dlv.network.graph import Network
from tests.idioms.subject import NoKernel, Subject, input_names, run_onnx
from tests.idioms.table import Idiom

torch: Any = untyped_torch

EQUAL, SAID, REFUSED, NONE, WRONG, TRACEBACK = (
    *("equal", "said", "refused", "-", "WRONG", "TRACEBACK"),
)
BAD = (WRONG, TRACEBACK)
ENGINES = {
    "numpy": ("numpy", "float64"),
    "torch": ("torch", "float64"),
    "torch32": ("torch", "float32"),
    "ort": ("onnxruntime", "float32"),
}
CELLS = [
    *("import", *ENGINES, "onnx", "module", "state", "train", "copy", "slice", "insert"),
    *("pt2", "pt2-numpy", "pt2-torch", "pt2-ort", "pt2-module"),
]
LOOSE, NARROW = 1e-4, 4e-2


class Wrong(Exception):
    """Another number, and nothing was said."""


class Said(Exception):
    """Something else, and a note of the import says so."""


@dataclass(frozen=True)
class Outcome:
    kind: str
    text: str = ""


@dataclass
class Row:
    idiom: Idiom
    cells: dict[str, Outcome] = dataclasses.field(default_factory=dict)

    @property
    def bad(self) -> dict[str, Outcome]:
        return {name: cell for name, cell in self.cells.items() if cell.kind in BAD}


def leaves(value: Any) -> list[Any]:
    """Tensors and numbers of an answer, from left to right."""
    if value is None:
        return []
    if isinstance(value, Mapping):
        return [leaf for item in value.values() for leaf in leaves(item)]
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in leaves(item)]
    if dataclasses.is_dataclass(value):
        return [leaf for f in dataclasses.fields(value) for leaf in leaves(getattr(value, f.name))]
    return [value]


def array(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        value = value.detach()
        value = value.float() if value.dtype == torch.bfloat16 else value
        return value.resolve_conj().resolve_neg().numpy()
    return np.asarray(value)


def check_same(found: Sequence[Any], wanted: Sequence[Any], idiom: Idiom, where: str) -> None:
    """Wrong where an answer is another one. Plain numbers may be left out."""
    if len(found) != len(wanted):
        wanted = [value for value in wanted if isinstance(value, torch.Tensor | np.ndarray)]
    if len(found) != len(wanted):
        raise Wrong(f"{where}: {len(found)} outputs, not {len(wanted)}")
    for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
        _check_one(array(one), array(other), idiom, f"{where}, output {place}")


def _check_one(found: Any, wanted: Any, idiom: Idiom, where: str) -> None:
    if found.shape != wanted.shape:
        raise Wrong(f"{where}: shape {found.shape}, not {wanted.shape}")
    if found.dtype.kind.replace("u", "i") != wanted.dtype.kind.replace("u", "i"):
        raise Wrong(f"{where}: {found.dtype}, not {wanted.dtype}")
    if wanted.dtype.kind in "biu":
        if not np.array_equal(found, wanted):
            raise Wrong(f"{where}: {(found != wanted).sum()} of {wanted.size} differ")
        return
    most = NARROW if idiom.narrow else LOOSE
    exact, found = wanted.astype(np.complex128), found.astype(np.complex128)
    usual = np.isfinite(exact)
    if not np.array_equal(usual, np.isfinite(found)) or not np.array_equal(
        exact[~usual], found[~usual], equal_nan=True
    ):
        raise Wrong(f"{where}: NaN or infinities elsewhere")
    if not usual.any():
        return
    off = np.abs(found - exact)[usual].max()
    scale = max(1.0, np.abs(exact[usual]).max())
    if off > most * scale:
        raise Wrong(f"{where}: off by {off:.2g}, values up to {scale:.2g}")


def wanted(idiom: Idiom, second: bool) -> list[Any]:
    """What the module itself gives in eval mode."""
    arguments, named = copied(idiom.called(second))
    with torch.set_grad_enabled(idiom.grads):
        found = leaves(idiom.module()(*arguments, **named))
    return [x.detach().clone() if isinstance(x, torch.Tensor) else x for x in found]


def copied(value: Any) -> Any:
    return torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.clone, value)


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor)


def given(network: Network, called: Any) -> dict[str, torch.Tensor]:
    """What it is called with, by the network's names."""
    arguments, named = copied(called)
    tree = torch.utils._pytree.tree_leaves
    names = input_names(network)
    found = {name: named[name] for name in names if _is_tensor(named.get(name))}
    rest = [leaf for leaf in tree(arguments) if _is_tensor(leaf)]
    rest += [
        leaf
        for key, value in named.items()
        if key not in found
        for leaf in tree(value)
        if _is_tensor(leaf)
    ]
    free = [name for name in names if name not in found]
    if len(free) != len(rest):
        raise Wrong(f"the network has the inputs {names}")
    found.update(zip(free, rest, strict=True))
    return {name: found[name] for name in names}


def told(error: DlvError) -> str:
    return error.message if error.why is None else f"{error.message} ({error.why})"


@contextlib.contextmanager
def silent() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def attempt(run: Callable[[], Any]) -> tuple[Outcome, Any]:
    try:
        with silent():
            value = run()
    except DlvError as error:
        return Outcome(REFUSED, told(error)), None
    except Wrong as error:
        return Outcome(WRONG, str(error)), None
    except Said as error:
        return Outcome(SAID, str(error)), None
    except NoKernel as error:
        return Outcome(NONE, f"onnxruntime has no kernel: {error}"), None
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if "/dlv/" in f.filename] or frames
        where = f"{Path(own[-1].filename).name}:{own[-1].lineno}"
        return Outcome(TRACEBACK, f"{type(error).__name__}: {str(error)[:300]} ({where})"), None
    return Outcome(EQUAL), value


class Trial:
    """The cells of one idiom. `all_nodes`: cut and edit at every node, not at three."""

    def __init__(self, idiom: Idiom, all_nodes: bool = False) -> None:
        self.idiom = idiom
        self.all_nodes = all_nodes
        self.called = {second: idiom.called(second) for second in (False, True)}
        self.wanted = {second: wanted(idiom, second) for second in (False, True)}

    def row(self, cells: Sequence[str] = CELLS) -> Row:
        row = Row(self.idiom)
        outcome, subject = attempt(self.imported)
        row.cells["import"] = outcome
        if subject is not None:
            self.fill(row, subject, "", cells)
        if any(name.startswith("pt2") for name in cells) and not self.idiom.draws:
            outcome, subject = attempt(self.saved)
            row.cells["pt2"] = outcome
            if subject is not None:
                self.fill(row, subject, "pt2-", cells)
        return row

    def fill(self, row: Row, subject: Subject, prefix: str, cells: Sequence[str]) -> None:
        tests: dict[str, Callable[[], Any]] = {
            name: lambda which=which: self.by_engine(subject, *which)  # type: ignore[misc]
            for name, which in ENGINES.items()
        }
        tests |= {
            "onnx": lambda: self.onnx(subject),
            "module": lambda: self.module(subject),
            "state": lambda: self.state(subject),
            "train": lambda: self.train(subject),
            "copy": lambda: self.copy(subject),
            "slice": lambda: self.slice(subject),
            "insert": lambda: self.insert(subject),
        }
        for name, test in tests.items():
            if f"{prefix}{name}" in cells:
                row.cells[f"{prefix}{name}"] = attempt(test)[0]

    def imported(self) -> Subject:
        module = self.idiom.module()
        arguments, named = copied(self.called[False])
        before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        found = live.trace(module, arguments, named)
        for name, tensor in module.state_dict().items():
            if not torch.equal(tensor, before[name]):
                raise Wrong(f"the import changed {name}")
        if any(each.training for each in module.modules()):
            raise Wrong("the import changed the mode")
        if self.idiom.draws:
            if not any("random" in note for note in found.notes):
                raise Wrong("it draws random numbers, and nothing is said")
            raise Said("; ".join(found.notes))
        return Subject.of(found, module.state_dict())

    def saved(self) -> Subject:
        """What torch.export.save wrote, read again."""
        module = self.idiom.module()
        arguments, named = copied(self.called[False])
        shapes = torch.export.ShapesCollection()
        size = self.idiom.sizes[0]
        for leaf in torch.utils._pytree.tree_leaves((arguments, named)):
            if isinstance(leaf, torch.Tensor) and leaf.dim() and leaf.shape[0] == size:
                shapes[leaf] = {0: torch.export.Dim.AUTO}
        with tempfile.TemporaryDirectory() as folder, quiet():
            path = Path(folder, "model.pt2")
            try:
                torch.export.save(
                    torch.export.export(module, arguments, named, dynamic_shapes=shapes), path
                )
            except Exception as error:
                raise NoKernel(f"torch.export: {str(error)[:80]}") from error
            found = pt2.open(str(path))
            subject = Subject.of(found)
            subject = subject.with_network(subject.network, [_in_memory(t) for t in found.tensors])
            constants = [_in_memory(t) for t in found.constants]
            found.close()
            return replace(subject, constants=constants)

    def batches(self, subject: Subject) -> Iterator[tuple[bool, dict[str, torch.Tensor], str]]:
        for second, called in self.called.items():
            yield second, given(subject.network, called), "second batch" if second else "example"

    def may_refuse(self, subject: Subject, second: bool) -> Any:
        """A network of one batch size says so of another."""
        fixed = all(isinstance(n, int) for item in subject.network.inputs for n in item.shape[:1])
        other = self.idiom.sizes[0] != self.idiom.sizes[1]
        return (
            contextlib.suppress(DlvError)
            if second and other and fixed
            else contextlib.nullcontext()
        )

    def by_engine(self, subject: Subject, name: str, precision: str) -> None:
        for second, inputs, where in self.batches(subject):
            feeds = {key: array(tensor) for key, tensor in inputs.items()}
            with self.may_refuse(subject, second):
                found = subject.evaluated(name, precision, feeds)
                check_same(found, self.wanted[second], self.idiom, where)
        feeds = {
            key: array(tensor) for key, tensor in given(subject.network, self.called[False]).items()
        }
        scores, itself = subject.scores(name, precision, feeds)
        if itself:
            check_same([scores], self.wanted[False][:1], self.idiom, "scores")
        elif not np.array_equal(scores.argmax(-1), array(self.wanted[False][0]).argmax(-1)):
            raise Wrong("scores: another order")

    def onnx(self, subject: Subject) -> None:
        model = subject.onnx()
        for second, inputs, where in self.batches(subject):
            values = [array(tensor) for tensor in inputs.values()]
            if any(tensor.dtype == torch.bfloat16 for tensor in inputs.values()):
                raise NoKernel("numpy has no bfloat16")
            try:
                found = run_onnx(model, values)
            except NoKernel:
                raise
            except Exception as error:
                if second and subject.static and "INVALID_ARGUMENT" in str(error):
                    continue
                raise Wrong(f"{where}: onnxruntime: {str(error)[:300]}") from error
            check_same(found, self.wanted[second], self.idiom, where)

    def module(self, subject: Subject) -> None:
        made = subject.built()
        self.run_module(subject, made)

    def run_module(self, subject: Subject, made: Any) -> None:
        before = {name: tensor.clone() for name, tensor in made.state_dict().items()}
        for second, inputs, where in self.batches(subject):
            made.load_state_dict(before)
            try:
                with torch.no_grad(), self.may_refuse(subject, second):
                    check_same(leaves(made(**inputs)), self.wanted[second], self.idiom, where)
            except (RuntimeError, IndexError) as error:
                if not (second and subject.static):
                    raise Wrong(f"{where}: {str(error)[:200]}") from error

    def state(self, subject: Subject) -> None:
        """All of its state, and what two calls one after the other make of it."""
        module, made = self.idiom.module(), subject.built()
        names, own = list(module.state_dict()), list(made.state_dict())
        if names != own:
            raise Wrong(f"the state has {own[:6]}, not {names[:6]}")
        trained = {name for name, _ in module.named_parameters(remove_duplicate=False)}
        theirs = {name for name, _ in made.named_parameters(remove_duplicate=False)}
        floating = {name for name in trained if module.state_dict()[name].is_floating_point()}
        if theirs != floating:
            raise Wrong(f"trained or not: {sorted(theirs ^ floating)[:4]}")
        with torch.set_grad_enabled(self.idiom.grads):
            for call in range(2):
                arguments, named = copied(self.called[False])
                there = leaves(module(*arguments, **named))
                here = leaves(made(**given(subject.network, self.called[False])))
                check_same(here, there, self.idiom, f"call {call + 1}")
        for name, tensor in module.state_dict().items():
            if any(f"forward changes {name}:" in note for note in subject.notes):
                raise Said(f"{name} stays as it is")
            _check_one(
                array(made.state_dict()[name]), array(tensor), self.idiom, f"{name} afterwards"
            )

    def train(self, subject: Subject) -> None:
        try:
            self.trained(subject)
        except Wrong:
            said = [note for note in subject.notes if "train" in note]
            if said:
                raise Said("; ".join(said)) from None
            raise

    def trained(self, subject: Subject) -> None:
        """Answers, gradients and statistics in training mode."""
        module, made = self.idiom.module().train(), subject.built().train()
        arguments, named = copied(self.called[False])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            random.seed(3)
            try:
                there = leaves(module(*arguments, **named))
            except RuntimeError as error:
                raise NoKernel("the module itself cannot be trained") from error
            torch.manual_seed(3)
            here = leaves(made(**given(subject.network, self.called[False])))
        check_same(here, there, self.idiom, "training")
        try:
            _backward(there)
        except RuntimeError as error:
            raise NoKernel("the module itself cannot be trained") from error
        _backward(here)
        grads = {name: p.grad for name, p in made.named_parameters()}
        for name, parameter in module.named_parameters():
            if parameter.grad is not None and parameter.is_floating_point():
                if grads.get(name) is None:
                    if parameter.grad.abs().max() == 0:
                        continue
                    raise Wrong(f"no gradient of {name}")
                _check_one(
                    array(grads[name]), array(parameter.grad), self.idiom, f"gradient of {name}"
                )
            elif (
                parameter.grad is None
                and grads.get(name) is not None
                and grads[name].abs().max() > 0
            ):
                raise Wrong(f"a gradient of {name}, which has none")
        for name, buffer in module.named_buffers():
            if name in made.state_dict():
                _check_one(
                    array(made.state_dict()[name]),
                    array(buffer),
                    self.idiom,
                    f"{name} after training",
                )

    def copy(self, subject: Subject) -> None:
        """An edited copy's network.json, read again, with the weights carried over."""
        node = self.nodes(subject)[0]
        changed, _ = instructing.derived(
            subject.network, instructing.Instructions(rename=[f"{node}=renamed9"]), subject.shapes
        )
        again, warnings_ = json_form.read(json.loads(network_json.text(changed)))
        if warnings_ or again.id != changed.id:
            raise Wrong(f"network.json: {warnings_}")
        again = replace(again, origin=subject.network.origin)
        plan = reuse.plan(subject.network, again, subject.shapes)
        carried = copying.derived_tensors(plan, subject.tensors, 0)
        made = subject.with_network(again, carried)
        self.run_module(made, made.built())

    def nodes(self, subject: Subject) -> list[str]:
        """Where to cut: some nodes of the middle that depend on an input."""
        network = subject.network
        below = set(input_names(network))
        found = []
        picks = [n for n in network.nodes if n.attrs.get("kind") == "getitem"]
        taken = {name for node in picks for name, _ in node.inputs}
        for node in network.topological():
            if below & {name for name, _ in node.inputs}:
                below.add(node.name)
                several = len(slicing._ends(node, [node.name])) > 1 or node.name in taken
                if node.attrs.get("kind") != "size" and not several:
                    found.append(node.name)
        if not found:
            raise NoKernel("no node")
        if self.all_nodes or len(found) <= 3:
            return found
        stem = [name for name in found if name == "stem"]
        return list(dict.fromkeys([*stem, *(found[len(found) * k // 4] for k in (1, 2, 3))]))

    def slice(self, subject: Subject) -> None:
        refused: list[DlvError] = []
        nodes = self.nodes(subject)
        for node in nodes:
            try:
                self.slice_at(subject, node)
            except DlvError as error:
                refused.append(error)
        if len(refused) == len(nodes):
            raise refused[0]

    def slice_at(self, subject: Subject, node: str) -> None:
        network, shapes = subject.network, subject.shapes
        above = _above(network, node)
        starts = [name for name in input_names(network) if name in above]
        inputs = given(network, self.called[True] if not subject.static else self.called[False])
        expected = self.wanted[not subject.static]
        head = subject.with_network(slicing.slice(network, starts, [node], tensors=shapes).network)
        with torch.set_grad_enabled(self.idiom.grads):
            value = leaves(
                head.built()(**{n: inputs[n].clone() for n in input_names(head.network)})
            )
        hooked = self.hooked(node, not subject.static)
        if hooked is not None:
            check_same(value[:1], [hooked], self.idiom, f"up to {node}")
        readers = list(
            dict.fromkeys(n.name for n in network.topological() if node in {p for p, _ in n.inputs})
        )
        below = _below(network, readers)
        ends = list(dict.fromkeys(n for n, _ in network.outputs if n in below))
        readers = [name for name in readers if _below(network, [name]) & set(ends)]
        if not ends:
            return
        tail = slicing.slice(network, readers, ends, tensors=shapes).network
        cut = slicing._Cut(
            Wiring(network, shapes), slicing._path(network, readers, ends), readers, "keep"
        )
        cut.kept(ends)
        ports = {item.name: port for port, item in cut.inputs.items()}
        whole = (
            subject.with_network(replace(network, outputs=tuple(ports.values()))) if ports else None
        )
        values = dict(inputs)
        if whole is not None:
            with torch.no_grad():
                found = leaves(whole.built()(**copied(inputs)))
            values.update(zip(ports, found, strict=True))
        part = subject.with_network(tail)
        with torch.no_grad():
            answers = leaves(part.built()(**copied({n: values[n] for n in input_names(tail)})))
        tensors = [x for x in expected if isinstance(x, torch.Tensor)]
        expected = tensors if len(tensors) == len(network.outputs) else expected
        if len(expected) != len(network.outputs):
            raise NoKernel("outputs that are plain numbers")
        by_port = dict(zip(network.outputs, expected, strict=True))
        pairs = [
            (answer, by_port[port])
            for answer, port in zip(answers, tail.outputs, strict=True)
            if port in by_port
        ]
        check_same([a for a, _ in pairs], [b for _, b in pairs], self.idiom, f"behind {node}")

    def hooked(self, node: str, second: bool) -> Any:
        """What the layer of that name gives in the module itself, where it is called once."""
        module = self.idiom.module()
        held = dict(module.named_modules()).get(node)
        if held is None or any(True for _ in held.children()):
            return None
        values: list[Any] = []
        held.register_forward_hook(lambda _, __, y: values.append(copied(y)))
        arguments, named = copied(self.called[second])
        with torch.set_grad_enabled(self.idiom.grads):
            module(*arguments, **named)
        return values[0] if len(values) == 1 and isinstance(values[0], torch.Tensor) else None

    def insert(self, subject: Subject) -> None:
        """A DROPOUT anywhere changes nothing in eval mode."""
        refused: list[DlvError] = []
        nodes = self.nodes(subject)
        for node in nodes:
            try:
                made = editing.edit(
                    subject.network, [_dropout_behind(node)], tensors=subject.shapes
                )
                plan = reuse.plan(subject.network, made.network, subject.shapes)
                changed = subject.with_network(
                    made.network, copying.derived_tensors(plan, subject.tensors, 0)
                )
                self.run_module(changed, changed.built())
            except DlvError as error:
                refused.append(error)
            except Wrong as error:
                raise Wrong(f"behind {node}: {error}") from error
        if len(refused) == len(nodes):
            raise refused[0]


def _dropout_behind(node: str) -> Callable[[editing.Editor], Any]:
    return lambda editor: editor.insert(node, patterns.parse("DROPOUT(p=0.5)"))


def _in_memory(tensor: Tensor) -> Tensor:
    data = tensor.read()
    return replace(tensor, read=lambda: data)


def _backward(values: list[Any]) -> None:
    total = sum(
        (x.real.double() * torch.linspace(0.3, 1, x.numel()).double().reshape(x.shape)).sum()
        for x in values
        if isinstance(x, torch.Tensor)
        and (x.is_floating_point() or x.is_complex())
        and x.requires_grad
    )
    if isinstance(total, torch.Tensor):
        total.backward()


def _above(network: Network, node: str) -> set[str]:
    found, todo = set(), [node]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            if name in network:
                todo.extend(each for each, _ in network.node(name).inputs)
    return found


def _below(network: Network, starts: Sequence[str]) -> set[str]:
    found = set(starts)
    for node in network.topological():
        if found & {name for name, _ in node.inputs}:
            found.add(node.name)
    return found
