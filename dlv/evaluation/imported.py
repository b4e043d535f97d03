"""Whether the network that was read from an ONNX file computes what the file computes.

Both are run on drawn inputs: the file by onnxruntime or onnx, where one of them is installed, the
network by every engine that would be offered for it. An operator whose reading differs is kept
as it is in the file; a network that differs all the same is not kept.
"""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import dlv.disk.children as children
import dlv.evaluation.engines as engines
from dlv.adapters.checkpoint import Checkpoint
from dlv.adapters.engine_runs import session
from dlv.adapters.onnx import files as onnx_files
from dlv.dataclass import dataclass
from dlv.errors import DlvError, require
from dlv.evaluation.engines import threads, widened
from dlv.kinds import Array
from dlv.network.agreement import Difference, differing, drawn, rows_of, tolerance, too_long
from dlv.network.graph import Network, Port
from dlv.network.program import program
from dlv.weights.arrays import to_array

Values = dict[str, Array]

RUNTIME, REFERENCE = "onnxruntime", "onnx"


def runners() -> list[str]:
    """The packages that can run a file, the quicker one first."""
    return [name for name in (RUNTIME, REFERENCE) if importlib.util.find_spec(name) is not None]


class Original:
    """The model of a file. `more`: names of values that are to come out beside its outputs.

    What the packages raise is of many classes; a file that they cannot run raises Exception.
    """

    def __init__(self, path: str, by: str, more: Sequence[str] = ()) -> None:
        self._by = by
        self._run = self._of_runtime(path, more) if by == RUNTIME else self._of_onnx(path, more)

    def __call__(self, inputs: Mapping[str, Array]) -> Values:
        return {k: v for k, v in self._run(inputs).items() if v is not None}

    def _of_runtime(self, path: str, more: Sequence[str]) -> Any:
        runtime = require("onnxruntime", "onnxruntime")
        model: Any = path if not more else _with_outputs(path, more).SerializeToString()
        made = session(runtime, model, threads())
        names = [item.name for item in made.get_outputs()]
        types = [item.type for item in made.get_outputs()]

        def run(inputs: Mapping[str, Array]) -> Values:
            return dict(zip(names, widened(made.run(None, dict(inputs)), types), strict=True))

        return run

    def _of_onnx(self, path: str, more: Sequence[str]) -> Any:
        reference = require("onnx.reference", "onnx")
        made = reference.ReferenceEvaluator(_with_outputs(path, more))

        def run(inputs: Mapping[str, Array]) -> Values:
            return dict(zip(made.output_names, made.run(None, dict(inputs)), strict=True))

        return run


def _with_outputs(path: str, more: Sequence[str]) -> Any:
    onnx: Any = require("onnx", "onnx")
    model = onnx.load(path)
    there = {item.name for item in model.graph.output}
    for name in more:
        if name not in there:
            model.graph.output.append(onnx.ValueInfoProto(name=name))
    return model


FORMAT = onnx_files.FORMAT
_NOT_COMPARED = "the network was not compared with the file"
_CHILD_SECONDS = 120  # for all of it, in a process of its own
# So often another operator is kept as it is before the network is given up.
_MOST_RAW = 4
# So long of all processors the file itself may take for one batch; numpy takes ten times that.
_MOST_SECONDS = 2.0
_BATCHES = (2, 1)
# Lengths that are tried for open axes other than the batch, and what whole numbers are below.
_LENGTHS, _BELOW = (8, 32, 224), (5, 2, 1)
_ENGINES = (("numpy", "float32"), ("torch", "float32"), ("onnxruntime", "float32"))


@dataclass(frozen=True)
class _Fault:
    engine: str
    difference: Difference


def keep_agreeing(
    path: str, opened: Checkpoint, known: set[str], raw: set[str] | None = None
) -> tuple[Checkpoint, list[str]]:
    """Return the file with a network that agrees with it, or without one, and notes.

    `known`: ids of networks that were found to agree before; this one is added. `raw` takes the
    values whose operators were kept as they are.
    What comes back may be another Checkpoint, in the place of the one that was given and is closed.
    """
    notes: list[str] = []
    raw = set() if raw is None else raw
    if opened.network is None or opened.network.id in known:
        return opened, notes
    while opened.network is not None and opened.format == FORMAT and runners():
        fault, note = _compared(path, opened, opened.network)
        if note is not None:
            notes.append(note)
        if fault is None:
            break
        named = _operator(path, opened, opened.network, fault, raw)
        if named is None or named[0] in raw or len(raw) == _MOST_RAW:
            notes.append(f"stored without a network: {_difference_note(fault, named)}")
            opened.network, opened.constants = None, []
            break
        raw.add(named[0])
        notes.append(f"{named[1]} is stored as it is in the file: {_difference_note(fault, named)}")
        opened.close()
        opened = onnx_files.open(path, raw=frozenset(raw))
    if opened.network is not None:
        known.add(opened.network.id)
    return opened, notes


def _difference_note(fault: _Fault, named: tuple[str, str, Difference] | None) -> str:
    where = (
        f"the output {fault.difference}"
        if named is None
        else f"first {named[2]}, made by {named[1]}"
    )
    return f"{fault.engine} computes something different from the file; {where}"


def _compared(path: str, opened: Checkpoint, network: Network) -> tuple[_Fault | None, str | None]:
    """Return the difference, and notes on anything that was not compared."""
    tensors = {t.name: (t.dtype, t.shape) for t in [*opened.tensors, *opened.constants]}
    why = too_long(network, tensors, sum(_BATCHES))
    if why is not None:
        return None, f"{_NOT_COMPARED}: {why}"
    try:
        pairs = _wanted(path, network)
    except Exception as error:  # of whatever class the packages have
        first = str(error).strip().partition("\n")[0][:160]
        return None, f"{_NOT_COMPARED}, which did not run: {first}"
    if isinstance(pairs, str):
        return None, f"{_NOT_COMPARED}: {pairs}"
    names = onnx_files.outputs(path)
    most = tolerance(*(dtype for dtype, _ in tensors.values()), *(i.dtype for i in network.inputs))
    for engine in _offered(opened, network, list(zip(names, network.outputs, strict=True))):
        for inputs, wanted in pairs:
            got = engine.run(inputs)
            what = None if got is None else differing(names, got, wanted, most)
            if what is not None and not _confirmed(path, inputs, names, got or {}, most):
                return _Fault(engine.name, what), None
    return None, None


def _wanted(path: str, network: Network) -> list[tuple[Values, Values]] | str:
    """Inputs that the file takes, and what it makes of them; or why it takes too long."""
    original, limits, found = _first(path), rows_of(network), []
    for seed, batch in enumerate(_BATCHES):
        failed: Exception | None = None
        for length, below in product(_LENGTHS, _BELOW):
            inputs = drawn(
                network.inputs, batch=batch, other=length, most=below, seed=seed, limits=limits
            )
            started = time.process_time()
            try:
                found.append((inputs, original(inputs)))
            except Exception as error:  # the next numbers may fit
                failed = error
                continue
            if time.process_time() - started > _MOST_SECONDS:
                return f"the file takes more than {_MOST_SECONDS:g} s for {batch} examples"
            break
        else:
            # A second size that the file does not take is no fault of the network.
            if not found and failed is not None:
                raise failed
    return found


def _first(path: str) -> Original:
    failed: Exception | None = None
    for name in runners():
        try:
            return Original(path, name)
        except Exception as error:  # the other one may know the operators
            failed = failed or error
    assert failed is not None
    raise failed


def _confirmed(
    path: str, inputs: Values, names: Sequence[str], got: Mapping[str, Array], most: float
) -> bool:
    """Whether onnx itself computes what the engine did: then it is onnxruntime that differs."""
    if runners() != [RUNTIME, REFERENCE]:
        return False
    try:
        wanted = Original(path, REFERENCE)(inputs)
    except Exception:  # it knows less
        return False
    return differing(names, got, wanted, most) is None


@dataclass(frozen=True)
class _Engine:
    name: str
    run: Callable[[Values], Values | None]  # None: refused, as `dlv eval` would


def _offered(
    opened: Checkpoint, network: Network, ports: Sequence[tuple[str, Port]], only: str | None = None
) -> Iterator[_Engine]:
    held = {t.name: t for t in [*opened.tensors, *opened.constants]}

    def tensor(name: str) -> Array:
        item = held[network.aliases.get(name, name)]
        return to_array(item.dtype, item.shape, item.read())

    shapes = {t.name: (t.dtype, t.shape) for t in held.values()}
    for name, precision in _ENGINES:
        if only not in (None, name) or importlib.util.find_spec(name) is None:
            continue
        try:
            made = _Ports(name, precision, network, ports, tensor, shapes)
        except DlvError:
            continue
        yield _Engine(name, made)


class _Ports:
    """An engine that gives the values at ports, under names."""

    def __init__(
        self,
        name: str,
        precision: str,
        network: Network,
        ports: Sequence[tuple[str, Port]],
        tensor: Callable[[str], Array],
        shapes: Mapping[str, tuple[str, tuple[int, ...]]],
    ) -> None:
        whole = [(key, port) for key, port in ports if port[1] == 0 and port[0] in network]
        self._parts = []
        if whole:
            cut = replace(network, outputs=tuple(port for _, port in whole))
            made = program(cut, shapes, until=list(dict.fromkeys(port[0] for _, port in whole)))
            keys = {key: made.kept[port[0]] for key, port in whole}
            self._parts.append((engines.engine(name, made, tensor, precision), keys))
        for key, port in ports:
            if (key, port) not in whole:
                made = program(replace(network, outputs=(port,)), shapes)
                engine = engines.engine(name, made, tensor, precision)
                self._parts.append((engine, {key: made.scores}))

    def __call__(self, inputs: Values) -> Values | None:
        found: Values = {}
        try:
            for engine, keys in self._parts:
                values = engine.values(inputs)
                found.update({key: values[port] for key, port in keys.items()})
        except DlvError:
            return None
        return found


def _operator(
    path: str, opened: Checkpoint, network: Network, fault: _Fault, raw: Collection[str]
) -> tuple[str, str, Difference] | None:
    """The value of the file from which on they differ, with the kind of its operator."""
    if REFERENCE not in runners():
        return None  # nothing can ask the file for values within it
    alive = {node.name for node in network.part(network.outputs).nodes}
    values = {k: v for k, v in onnx_files.values(path, raw).items() if v[0][0] in alive}
    ports = [(name, port) for name, (port, _) in values.items()]
    try:
        original = Original(path, runners()[0], list(values))
        pairs = _wanted(path, network)
        for inputs, _ in [] if isinstance(pairs, str) else pairs:
            wanted = original(inputs)
            for engine in _offered(opened, network, ports, fault.engine):
                got = engine.run(inputs)
                what = None if got is None else differing(list(values), got, wanted)
                if what is not None:
                    return what.where, values[what.where][1], what
    except Exception:  # of whatever class the packages have: it stays unknown which one it is
        return None
    return None


def keep_agreeing_apart(
    path: str, opened: Checkpoint, known: set[str]
) -> tuple[Checkpoint, list[str]]:
    """As `keep_agreeing`, in a child process: some files that are not sound end onnxruntime.

    The child prints its findings as one line of JSON; the file is reopened here as they require.
    """
    if opened.network is None or opened.network.id in known or not runners():
        return opened, []
    found = _child_findings(path)
    if isinstance(found, str):
        return opened, [f"{_NOT_COMPARED}: {found}"]
    return reopened(path, opened, known, found)


def reopened(
    path: str, opened: Checkpoint, known: set[str], found: Mapping[str, Any]
) -> tuple[Checkpoint, list[str]]:
    """Open the file again as the comparison requires."""
    if found["raw"]:
        opened.close()
        opened = onnx_files.open(path, raw=frozenset(found["raw"]))
    if not found["network"]:
        opened.network, opened.constants = None, []
    if opened.network is not None:
        known.add(opened.network.id)
    return opened, list(found["notes"])


def _child_findings(path: str) -> dict[str, Any] | str:
    """Return the findings of the child process, or the reason why there are none."""
    command = children.python("dlv.evaluation.imported", str(Path(path).absolute()))
    try:
        done = children.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_CHILD_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"it took more than {_CHILD_SECONDS} s"
    except OSError as error:
        return f"Python does not start: {error.strerror}"
    if done.returncode == -signal.SIGINT:
        raise KeyboardInterrupt
    if done.returncode < 0:
        return f"what ran the file was ended by {signal.Signals(-done.returncode).name}"
    try:
        # Libraries may have said something before.
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found if {"raw", "network", "notes"} <= found.keys() else "no answer came"
    except (ValueError, LookupError, AttributeError):
        return "no answer came"


def findings(path: str) -> dict[str, Any]:
    """Return the findings that the child process prints."""
    opened = onnx_files.open(path)
    raw: set[str] = set()
    opened, notes = keep_agreeing(path, opened, set(), raw)
    kept = opened.network is not None
    opened.close()
    return {"raw": sorted(raw), "network": kept, "notes": notes}


def main() -> None:
    print(json.dumps(findings(sys.argv[1])))
