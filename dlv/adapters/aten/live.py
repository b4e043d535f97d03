"""The network of a live torch module, by torch.export: nothing about the module is changed.

Its training graph is compared with its evaluation graph, switches of the mode aside.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import logging
import os
import random
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, NoReturn, TextIO

import numpy as np

from dlv.adapters import exported
from dlv.adapters.aten.exported_graph import dtype_name, fill
from dlv.adapters.aten.factory import factory_result, first_line
from dlv.adapters.aten.functional import Written
from dlv.adapters.aten.network import converted, live_calls, plain
from dlv.adapters.aten.record import CONSTANT, STATE, Argument, Call, Graph, Ref, Tagged
from dlv.adapters.aten.switches import exportable
from dlv.adapters.aten.views import DROPOUTS
from dlv.adapters.checkpoint import Checkpoint, Tensor
from dlv.dataclass import dataclass
from dlv.errors import DlvError, UsageError, require
from dlv.network.program import draws


@contextlib.contextmanager
def undisturbed(torch: Any, module: Any) -> Iterator[None]:
    """Whatever the code inside does to `module` and to random numbers is undone."""
    before = [(each, _attributes(each)) for each in module.modules()]
    try:
        with same_numbers(torch):
            yield
    finally:
        for each, kept in before:
            _restore(each, kept)


@contextlib.contextmanager
def same_numbers(torch: Any) -> Iterator[None]:
    """Random numbers afterwards are those that would have come now."""
    cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    numbers = random.getstate(), np.random.get_state(), torch.random.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if cuda else None
    try:
        yield
    finally:
        random.setstate(numbers[0])
        np.random.set_state(numbers[1])
        torch.random.set_rng_state(numbers[2])
        if devices is not None:
            torch.cuda.set_rng_state_all(devices)


def _attributes(module: Any) -> list[tuple[str, Any, Any]]:
    """Every attribute; of a list, dict or set its content too."""
    return [
        (name, value, value.copy() if type(value) in (list, dict, set) else None)
        for name, value in vars(module).items()
    ]


def _restore(module: Any, saved: list[tuple[str, Any, Any]]) -> None:
    attributes = vars(module)
    for name in attributes.keys() - {name for name, _, _ in saved}:
        del attributes[name]
    for name, value, content in saved:
        attributes[name] = value
        if isinstance(content, list):
            value[:] = content
        elif content is not None:
            value.clear()
            value.update(content)


class _OtherThreads:
    """A stream on which this thread says nothing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._silent = threading.get_ident()

    def write(self, text: str) -> int:
        if threading.get_ident() == self._silent:
            return len(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """What torch prints, logs and warns of is not shown: failures are told in our words."""
    silent = threading.get_ident()

    def others(record: logging.LogRecord) -> bool:
        return record.thread != silent

    known = list(logging.root.manager.loggerDict.values())
    loggers = [each for each in known if isinstance(each, logging.Logger)]
    mine = [each for each in loggers if each.name.split(".")[0] == "torch"]
    handlers = [handler for logger in (logging.root, *mine) for handler in logger.handlers]
    stream: Any = _OtherThreads(sys.stderr)
    for handler in handlers:
        handler.addFilter(others)
    try:
        with contextlib.redirect_stderr(stream), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for handler in handlers:
            handler.removeFilter(others)


FORMAT = "torch.export"
MOST_BATCH = 4096
_TESTED = "the network is the module in evaluation; {}, and training it leaves out the difference"
_OWN_TRAIN = "{} overrides train(): training the network does not do what that method does"
_FIXED = "{} keeps its statistics fixed in training; training the network updates them"
_DRAWS = (
    "{!r} draws random numbers in evaluation: the network is stored, but `dlv eval` and export to"
    " ONNX refuse it"
)
STATIC = "the batch size could not be left open: sizes are those of the example"
_HINT = "commit without a network, or export it elsewhere: dlv add F.onnx --as network"


class Unexportable(UsageError):
    """A module whose structure torch.export cannot tell."""


def trace(
    module: Any,
    examples: Any,
    keywords: Mapping[str, Any] | None = None,
    *,
    dynamic_batch: bool = True,
) -> Checkpoint:
    """The network of `module`, called with `examples`: a tensor, a tuple of arguments, or a dict.

    The tensors are those of `module.state_dict()`, by name; `Checkpoint.tensors` is empty.
    Unexportable tells why where there is no network. The module, its gradients and random
    numbers are as before.
    """
    torch = require("torch", "torch")
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"a torch module is needed, not {type(module).__name__}")
    module = _unwrapped(torch, module)
    arguments, named = _arguments(torch, examples, keywords)
    with (
        undisturbed(torch, module),
        quiet(),
        _plain_mode(torch),
        exportable(module, named) as switched,
    ):
        traced = _traced(torch, module, arguments, named, dynamic_batch)
        places = list(traced.graph.places)
        made = converted(traced.graph, traced.written, traced.constants, traced.origin(torch))
        _set_mode(module, training=False)
        guard: Any = require("dlv.adapters.aten.guard", "torch")
        compared = guard.compare(
            module,
            made.network,
            made.constants,
            guard.Batch(arguments, named),
            places,
            writes_parameters=bool(traced.written.parameters),
        )
        random = draws(made.network)
        if random is not None:
            compared.append(_DRAWS.format(random.name))
        return Checkpoint(
            FORMAT,
            [],
            notes=[*switched, *traced.notes, *made.notes, *compared],
            network=made.network,
            constants=made.constants,
        )


@dataclass
class _Traced:
    """What a module does in one mode, as a graph that writes nothing."""

    graph: Graph
    written: Written
    constants: dict[str, Tensor]
    static: bool
    notes: list[str] = field(default_factory=list)

    def origin(self, torch: Any) -> dict[str, Any]:
        told: dict[str, Any] = {"importer": FORMAT, "version": str(torch.__version__)}
        return {**told, "batch": "static"} if self.static else told


def _traced(torch: Any, module: Any, arguments: Any, named: Any, dynamic_batch: bool) -> _Traced:
    """The graph in evaluation mode, or the training graph if only mode switches tell them apart."""
    tested = _in_mode(torch, module, arguments, named, training=False, dynamic=dynamic_batch)
    if tested.static and dynamic_batch:
        tested.notes.append(STATIC)
    dropping = always_dropping(tested.graph)
    if dropping is not None:
        raise Unexportable(
            f"{dropping.op} in {dropping.path or 'forward'} drops numbers in evaluation, too",
            why="each call gives another answer",
            hint=_HINT,
        )
    own = with_own_statistics(tested.graph)
    overridden = _own_train(torch, module)
    if overridden:
        tested.notes.append(_OWN_TRAIN.format(overridden))
    try:
        trained = _in_mode(
            torch, module, arguments, named, training=True, dynamic=not tested.static
        )
    except DlvError as error:
        why = error.why or error.message
        tested.notes.append(_TESTED.format(f"in training mode the module cannot be traced ({why})"))
        return tested
    other = own or first_difference(
        trained.graph, tested.graph, trained.constants, tested.constants
    )
    if other is None and trained.static == tested.static:
        trained.notes, trained.graph.training = tested.notes, True
        fixed = fixed_norm(trained.graph)
        if fixed is not None:
            trained.notes.append(_FIXED.format(fixed.path or fixed.op))
        return trained
    where = "the batch" if other is None else other.path or f"forward, at {other.op}"
    tested.notes.append(_TESTED.format(f"in training the module differs (first in {where})"))
    return tested


def _own_train(torch: Any, module: Any) -> str:
    """Return the name of a submodule class that overrides train(), or an empty string."""
    for each in module.modules():
        kind = type(each)
        if kind.train is not torch.nn.Module.train and not kind.__module__.startswith("torch."):
            return str(kind.__name__)
    return ""


def _set_mode(module: Any, *, training: bool) -> None:
    # Flags alone: a module's own train() may do more, such as merging weights.
    for each in module.modules():
        each.training = training


def _in_mode(
    torch: Any, module: Any, arguments: Any, named: Any, *, training: bool, dynamic: bool
) -> _Traced:
    _set_mode(module, training=training)
    with _layer_by_layer(torch):
        return _exported(torch, module, arguments, named, dynamic)


@contextlib.contextmanager
def _layer_by_layer(torch: Any) -> Iterator[None]:
    """Without the one kernel for a whole layer of a transformer, which evaluation may take."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _exported(torch: Any, module: Any, arguments: Any, named: Any, dynamic: bool) -> _Traced:
    program = None
    if dynamic:
        with contextlib.suppress(Exception, SystemExit, GeneratorExit):
            program = _export(torch, module, *_batched(torch, arguments, named))
    static = program is None
    if program is None:
        program = _static(torch, module, arguments, named)
    graph = fill(torch, program)
    graph.ties, graph.state = _state(torch, module)
    constants = _constants(torch, program, graph)
    return _Traced(graph, plain(graph, constants), constants, static)


def from_factory(
    file_and_name: str, input_shapes: Sequence[Sequence[int] | str] = ()
) -> Checkpoint:
    """The network of the model that FILE.py:FACTORY makes; this runs the user's code.

    One shape for each input, the batch first: (1, 1, 28, 28), or "8,16:int64" with a dtype.
    Without any, FACTORY returns the model and example inputs.
    """
    torch = require("torch", "torch")
    with same_numbers(torch), factory_result(file_and_name) as found:
        module, examples = found, None
        if isinstance(found, tuple) and len(found) == 2:
            module, examples = found
        if not isinstance(module, torch.nn.Module):
            raise UsageError(
                f"{file_and_name} makes a {type(module).__name__}, not a torch module",
                hint="it returns the model, or the model and a tuple of example inputs",
            )
        if input_shapes:
            return _of_shapes(torch, module, input_shapes)
        if examples is None:
            raise UsageError(
                "the shape of the inputs is unknown",
                hint="--input-shape 1,3,224,224 for each, or return the model and example inputs",
            )
        return trace(module, examples)


def _of_shapes(torch: Any, module: Any, shapes: Sequence[Sequence[int] | str]) -> Checkpoint:
    parsed = [_shape(torch, shape) for shape in shapes]

    def zeros(otherwise: Any) -> tuple[Any, ...]:
        device = next((p.device for p in module.parameters()), "cpu")
        return tuple(
            torch.zeros(shape, dtype=dtype or otherwise, device=device) for shape, dtype in parsed
        )

    try:
        return trace(module, zeros(torch.get_default_dtype()))
    except Unexportable as error:
        if all(dtype for _, dtype in parsed):
            raise
        # Token numbers, perhaps: no shape tells.
        try:
            return trace(module, zeros(torch.int64))
        except Unexportable:
            raise error from None


def _shape(torch: Any, shape: Sequence[int] | str) -> tuple[tuple[int, ...], Any]:
    """Lengths and, where it is said, a dtype."""
    dtype = None
    lengths: Any = shape
    if isinstance(shape, str):
        text, colon, name = shape.partition(":")
        dtype = getattr(torch, name, None) if colon else None
        lengths = [int(part) if part.strip().isdecimal() else -1 for part in text.split(",")]
        if colon and not isinstance(dtype, torch.dtype):
            raise UsageError(f"`{shape}` names no dtype", hint="8,16:int64")
    if not all(type(length) is int and 0 <= length < 1 << 31 for length in lengths):
        raise UsageError(
            f"`{shape}` is not a shape", why="give lengths separated by commas, batch first"
        )
    return tuple(lengths), dtype


def _unwrapped(torch: Any, module: Any) -> Any:
    """The module itself, without what torch.compile or parallel training put around it."""
    parallel = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)
    while True:
        if isinstance(module, parallel):
            module = module.module
        elif isinstance(getattr(module, "_orig_mod", None), torch.nn.Module):
            module = module._orig_mod
        else:
            break
    if isinstance(module, torch.jit.ScriptModule):
        raise Unexportable(
            "a TorchScript module has no network here",
            why="torch.export takes Python modules",
            hint=_HINT,
        )
    return module


def _arguments(
    torch: Any, examples: Any, keywords: Mapping[str, Any] | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    named = dict(keywords or {})
    if isinstance(examples, Mapping):
        named, examples = {**examples, **named}, ()
    if isinstance(examples, torch.Tensor):
        examples = (examples,)
    if not isinstance(examples, Sequence) or isinstance(examples, str):
        raise UsageError(
            f"example inputs are a tensor, a tuple or a dict, not {type(examples).__name__}"
        )
    detach = _over_tensors(torch, lambda tensor: tensor.detach())
    return tuple(detach(list(examples))), detach(named)


def _over_tensors(torch: Any, change: Any) -> Any:
    tree = torch.utils._pytree
    return lambda value: tree.tree_map_only(torch.Tensor, change, value)


@contextlib.contextmanager
def _plain_mode(torch: Any) -> Any:
    """As if nothing were around the call: gradients are on, autocast is off."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.enable_grad())
        for device in ("cpu", *(["cuda"] if torch.cuda.is_available() else [])):
            stack.enter_context(torch.autocast(device, enabled=False))
        yield


def _batched(torch: Any, arguments: Any, named: Any) -> tuple[Any, Any, Any]:
    """The arguments with at least two of a batch, and which of their axes are open."""
    tensors = [
        leaf
        for leaf in torch.utils._pytree.tree_leaves((arguments, named))
        if isinstance(leaf, torch.Tensor) and leaf.dim()
    ]
    if not tensors:
        raise Unexportable("no example input has a batch")
    size = tensors[0].shape[0]
    if size == 1:
        # torch.export takes a length of one for a fixed one.
        twice = _over_tensors(
            torch, lambda t: torch.cat([t, t]) if t.dim() and t.shape[0] == 1 else t
        )
        arguments, named, size = twice(arguments), twice(named), 2
    shapes = torch.export.ShapesCollection()
    batch = torch.export.Dim("batch", min=1, max=MOST_BATCH)
    for leaf in torch.utils._pytree.tree_leaves((arguments, named)):
        if isinstance(leaf, torch.Tensor) and leaf.dim() and leaf.shape[0] == size:
            shapes[leaf] = {0: batch}
    return arguments, named, shapes


def _export(torch: Any, module: Any, arguments: Any, named: Any, shapes: Any) -> Any:
    def export() -> Any:
        return torch.export.export(module, arguments, named, dynamic_shapes=shapes, strict=False)

    try:
        return export()
    except RuntimeError as error:
        # Gradients forbid some writes in place that testing without them allows.
        if "inplace" not in str(error) and "in-place" not in str(error):
            raise
    with torch.no_grad():
        return export()


def _static(torch: Any, module: Any, arguments: Any, named: Any) -> Any:
    try:
        return _export(torch, module, arguments, named, None)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # what user code raises may be anything
        inside = type(error).__module__.startswith("torch.")
        message = "torch.export cannot take this module apart"
        if not inside:
            message = "forward fails on the example inputs"
        raise Unexportable(
            message, why=first_line(error), hint=_HINT if inside else None
        ) from error


def _state(
    torch: Any, module: Any
) -> tuple[dict[str, str], dict[str, tuple[str, tuple[int, ...]]]]:
    """Tensors that share their elements with an earlier one, and what all of them are."""
    ties: dict[str, str] = {}
    state: dict[str, tuple[str, tuple[int, ...]]] = {}
    first: dict[tuple[Any, ...], str] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if not isinstance(tensor, torch.Tensor):
            continue
        state[name] = dtype_name(tensor.dtype), tuple(tensor.shape)
        kept = first.setdefault(_place(tensor), name)
        if kept != name:
            ties[name] = kept
    return ties, state


def _place(tensor: Any) -> tuple[Any, ...]:
    """Equal for tensors that share their elements."""
    try:
        start = tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        start = 0
    if not start or not tensor.numel():
        return ("itself", id(tensor))
    return (start, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())


def _constants(torch: Any, program: Any, graph: Graph) -> dict[str, Tensor]:
    wanted = {p.target for p in graph.placeholders if p.kind == CONSTANT}
    found = {}
    for name, value in program.constants.items():
        if name in wanted and isinstance(value, torch.Tensor):
            found[name] = _constant(torch, name, value)
    return found


def _constant(torch: Any, name: str, value: Any) -> Tensor:
    plain = value.detach().cpu().contiguous()
    if type(plain) is not torch.Tensor:
        plain = plain.as_subclass(torch.Tensor)
    data = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    return Tensor(
        name, dtype_name(value.dtype), tuple(value.shape), len(data), lambda: data, "buffer"
    )


# Arguments that a rebuilt network sets by the mode of the module.
_SWITCHES = ("training", "train", "use_input_stats")
_SHARE = "dropout_p"
_STATISTICS = ("running_mean", "running_var")


def first_difference(
    trained: Graph,
    tested: Graph,
    constants: Mapping[str, Tensor],
    tested_constants: Mapping[str, Tensor],
) -> Call | None:
    """The first call of `tested` that `trained` has otherwise; None if a switch tells them apart.

    Both are graphs without writes. Layers that drop something are nothing when tested.
    """
    first, second = _Reading(trained, constants), _Reading(tested, tested_constants)
    for own, other in zip(first.told, second.told, strict=False):
        if own[1] != other[1]:
            return other[0]
    longer = second.told if len(second.told) > len(first.told) else first.told
    if len(second.told) != len(first.told):
        return longer[min(len(first.told), len(second.told))][0]
    if first.outputs != second.outputs:
        return second.told[-1][0] if second.told else Call("output", "output", (), ())
    return None


def always_dropping(tested: Graph) -> Call | None:
    """A call that drops numbers at random though the module is tested."""
    for call in live_calls(tested)[1]:
        share = call.get(_SHARE)
        if isinstance(share, (int, float)) and share > 0:
            return call
        p = call.get("p", call.get("dropout"))
        dropping = call.base in DROPOUTS or call.base in ("native_dropout", "lstm", "gru")
        if dropping and call.get("train") is True and p != 0:
            return call
    return None


def with_own_statistics(tested: Graph) -> Call | None:
    """A norm that is told to take the batch's statistics when tested, too, is given no others.

    The first such call.
    """
    calls = [_without_kept(call) for call in tested.calls]
    changed = (old for old, new in zip(tested.calls, calls, strict=True) if old != new)
    first = next(changed, None)
    tested.calls = calls
    return first


def _without_kept(call: Call) -> Call:
    if not any(call.get(switch) is True for switch in ("training", "use_input_stats")):
        return call
    return replace(
        call,
        arguments=tuple(
            replace(given, value=None) if given.name in _STATISTICS else given
            for given in call.arguments
        ),
    )


def fixed_norm(trained: Graph) -> Call | None:
    """A norm that keeps its statistics in training, too."""
    for call in live_calls(trained)[1]:
        switches = [call.get(switch) for switch in ("training", "use_input_stats")]
        if False in switches and call.get("running_mean") is not None:
            return call
    return None


class _Reading:
    """The calls that count, each with all that makes a difference when the module is tested."""

    def __init__(self, graph: Graph, constants: Mapping[str, Tensor]) -> None:
        self.names: dict[str, Any] = {}
        for placeholder in graph.placeholders:
            meaning: Any = (placeholder.kind, placeholder.target)
            if placeholder.kind == CONSTANT and placeholder.target in constants:
                meaning = _content(constants[placeholder.target])
            elif placeholder.kind not in STATE:
                meaning = placeholder.name
            self.names[placeholder.name] = meaning
        self.told: list[tuple[Call, Any]] = []
        for call in live_calls(graph)[1]:
            self._call(call)
        self.outputs = self._value(graph.outputs)

    def _call(self, call: Call) -> None:
        source = call.arguments[0].value if call.arguments else None
        if call.base in DROPOUTS and call.aten and isinstance(source, Ref):
            for dropped in filter(None, call.outputs):
                self.names[dropped] = self.names.get(source.name)
            return
        given = {
            argument.name or f"{place}": self._value(argument.value)
            for place, argument in enumerate(call.arguments)
            # torch omits defaults, so an argument of None in one mode may be missing in the other.
            if argument.value is not None and argument.name not in (*_SWITCHES, _SHARE)
        }
        for port, name in enumerate(call.outputs):
            if name is not None:
                self.names[name] = (len(self.told), port)
        self.told.append((call, (call.op, call.path, given)))

    def _value(self, value: Argument) -> Any:
        if isinstance(value, Ref):
            return ("value", self.names.get(value.name))
        if isinstance(value, list):
            return [self._value(item) for item in value]
        # 1, 1.0 and True are different arguments; NaN is equal to itself here.
        return value if isinstance(value, Tagged) else (type(value).__name__, repr(value))


def _content(tensor: Tensor) -> Any:
    return tensor.dtype, tensor.shape, b"".join(bytes(part) for part in tensor.parts())


# As they are before the user's code runs, which may change any of them.
_open, _exit, _dumps = io.FileIO, os._exit, json.dumps


def main() -> NoReturn:
    """Arguments: the file for the result, FILE.py:FACTORY, the shapes of the inputs.

    The process ends at once: threads and exit handlers of the user's code are not waited for.
    """
    _, result, code, *shapes = sys.argv
    file = code.rpartition(":")[0]
    sys.argv[:] = [file]  # the code may read arguments that it takes for its own
    faulthandler.enable()
    # Also where dlv was started with Ctrl-C ignored, as by nohup: it ends this by a signal then.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    status = 1
    try:
        found = from_factory(code, shapes)
        # Opened only now, as the user's code may close any descriptor.
        with _open(result, "wb") as raw, io.BufferedWriter(raw) as out:
            exported.write(out, found)
        status = 0
    except KeyboardInterrupt:
        status = 130
    except DlvError as error:
        _tell(result, error)
    except BaseException as error:  # the user's code may raise anything
        _tell(result, _unexpected(error, code, file))
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
        sys.stderr.flush()
    _exit(status)


def _tell(result: str, error: DlvError) -> None:
    with contextlib.suppress(BaseException), _open(result, "wb") as out:
        out.write(_dumps(error.as_json()).encode("utf-8"))


def _unexpected(error: BaseException, code: str, file: str) -> DlvError:
    """Methods of the model raise it, as a rule; otherwise the whole traceback is worth a look."""
    folder = Path(file).parent
    lines = [
        f"line {frame.lineno} of {frame.filename}"
        for frame in traceback.extract_tb(error.__traceback__)
        if folder in Path(frame.filename).parents
    ]
    if not lines:
        with contextlib.suppress(BaseException):
            traceback.print_exception(error)
    name = code.rpartition(":")[2]
    return UsageError(
        f"the model that {name} in {Path(file).name} makes cannot be looked at",
        why=first_line(error),
        hint=f"see {lines[-1]}" if lines else "the traceback is above",
    )
