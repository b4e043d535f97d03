"""Checkpoints beyond a plain state dict: the model's tensors, their names, the step."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dlv.adapters.torch.pickles import Call, Global, Mapping
from dlv.adapters.torch.tensors import is_tensor
from dlv.canonical import dumps, number
from dlv.errors import UnsafeInput

MOST_DEPTH = 64
MOST_VISITS = 2_000_000
MOST_TENSORS = 200_000
MOST_NAME = 4096
MOST_LETTERS = 32 << 20  # of all names together: a key that many share is in the file once
MOST_HYPERPARAMETERS = 10_000
_MOST_TEXT = 4096
_MOST_LIST = 100
_MOST_VISITED = 100_000

MODEL_KEYS = (
    "state_dict",
    "model_state_dict",
    "model_state",
    "model",
    "net",
    "network",
    "module",
    "weights",
)
OPTIMIZER_KEYS = (
    "optimizer",
    "optimizer_state_dict",
    "optimizer_state",
    "optimizer_states",
    "optim",
    "optim_state_dict",
)
EXTRA_WORDS = ("ema", "rng", "scheduler", "scaler", "callback", "loop", "loss", "metric", "amp")
BUFFER_NAMES = ("running_mean", "running_var", "num_batches_tracked")
STEP_KEYS = ("global_step", "step", "iteration", "epoch")
HYPERPARAMETER_KEYS = ("hyper_parameters", "hyperparameters", "hparams", "args", "config", "cfg")

_NUMPY_FORMATS = {
    "b1": "?",
    "i1": "b",
    "i2": "h",
    "i4": "i",
    "i8": "q",
    "u1": "B",
    "u2": "H",
    "u4": "I",
    "u8": "Q",
    "f2": "e",
    "f4": "f",
    "f8": "d",
}


@dataclass(frozen=True)
class Leaf:
    """A tensor's place in the saved object; `value` still describes it as the file does."""

    path: tuple[str, ...]
    value: Any


@dataclass(frozen=True)
class Named:
    name: str
    role: str
    value: Any


def leaves(root: Any, where: str) -> list[Leaf]:
    """All tensors of nested dicts and lists, in order; cycles are left, repeats are bounded."""
    if is_tensor(root):
        return [Leaf((), root)]
    found: list[Leaf] = []
    barren: set[int] = set()  # containers without a tensor
    visits = letters = 0
    stack: list[tuple[Any, tuple[str, ...], Iterator[tuple[Any, Any]], int]] = []
    open_ids: set[int] = set()

    def enter(value: Any, path: tuple[str, ...]) -> None:
        if len(stack) >= MOST_DEPTH:
            raise UnsafeInput(f"{where} is nested too deeply", why=f"{MOST_DEPTH} levels")
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        open_ids.add(id(value))
        stack.append((value, path, iter(items), len(found)))

    if isinstance(root, Mapping | list | tuple):
        enter(root, ())
    while stack:
        value, path, items, before = stack[-1]
        for key, child in items:
            visits += 1
            if visits > MOST_VISITS or len(found) >= MOST_TENSORS:
                raise UnsafeInput(
                    f"{where} holds too much, or the same again and again",
                    why=f"the limits are {MOST_TENSORS} tensors and {MOST_VISITS} values",
                )
            if is_tensor(child):
                found.append(Leaf((*path, _segment(key, visits, where)), child))
                length = sum(map(len, found[-1].path))
                letters += length
                if length > MOST_NAME:
                    raise UnsafeInput(f"{where} holds a name of over {MOST_NAME} letters")
                if letters > MOST_LETTERS:
                    raise UnsafeInput(f"{where} holds names of over {MOST_LETTERS} letters")
            elif (
                isinstance(child, Mapping | list | tuple)
                and len(child)
                and id(child) not in open_ids
                and id(child) not in barren
            ):
                enter(child, (*path, _segment(key, visits, where)))
                break
        else:
            stack.pop()
            open_ids.discard(id(value))
            if len(found) == before:
                barren.add(id(value))
    return found


def _segment(key: Any, count: int, where: str) -> str:
    if isinstance(key, str):
        if len(key) > MOST_NAME:
            raise UnsafeInput(f"{where} holds a name of over {MOST_NAME} letters")
        return key.encode("utf-8", "backslashreplace").decode()  # no lone surrogates
    if key is None or isinstance(key, bool | float):
        return str(key)
    if isinstance(key, int) and key.bit_length() <= 64:
        return str(key)
    return f"key{count}"


def assign(root: Any, leaves: list[Leaf]) -> list[Named]:
    """Names and roles: the model's tensors get theirs first, and no name is given twice."""
    model = _model_key(root, leaves)
    only_optimizer = (
        isinstance(root, Mapping)
        and isinstance(root.get("state"), Mapping)
        and isinstance(root.get("param_groups"), list)
    )
    wanted = []
    for leaf in leaves:
        path = leaf.path
        if only_optimizer:
            wanted.append(("optimizer", ("optimizer", *path)))
        elif model is not None and path[0] == model:
            wanted.append((_weight_or_buffer(path), path[1:]))
        elif len(path) > 1 and path[0] in OPTIMIZER_KEYS:
            wanted.append(("optimizer", ("optimizer", *path[1:])))
        elif len(path) > 1 and path[0].startswith("optim"):
            wanted.append(("optimizer", path))
        elif model is not None or (len(path) > 1 and _is_extra(path[0])):
            wanted.append(("extra", path))
        else:
            wanted.append((_weight_or_buffer(path), path))
    names: dict[int, str] = {}
    taken: set[str] = set()
    again: dict[str, int] = {}
    order = sorted(range(len(leaves)), key=lambda i: wanted[i][0] not in ("weight", "buffer"))
    for index in order:
        name = ".".join(wanted[index][1]) or "tensor"
        if name in taken:
            name = ".".join(leaves[index].path)
        base = name
        while name in taken:
            again[base] = again.get(base, 1) + 1
            name = f"{base}#{again[base]}"
        taken.add(name)
        names[index] = name
    return [Named(names[i], wanted[i][0], leaf.value) for i, leaf in enumerate(leaves)]


def _model_key(root: Any, leaves: list[Leaf]) -> str | None:
    """The key under which the model's own state dict lies, if it is wrapped."""
    if not isinstance(root, Mapping):
        return None
    wrapped = {leaf.path[0] for leaf in leaves if len(leaf.path) > 1}
    return next(
        (key for key in MODEL_KEYS if key in wrapped and isinstance(root.get(key), Mapping)), None
    )


def _weight_or_buffer(path: tuple[str, ...]) -> str:
    last = path[-1].rpartition(".")[2] if path else ""
    return "buffer" if last in BUFFER_NAMES else "weight"


def _is_extra(key: str) -> bool:
    return any(word in key.lower().split("_") for word in EXTRA_WORDS) or key == "callbacks"


def step_of(root: Any) -> int | None:
    """The training step, or the epoch where no step is told."""
    if not isinstance(root, Mapping):
        return None
    for key in STEP_KEYS:
        value = scalar(root.get(key))
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is int and 0 <= value < 1 << 63:
            return value
    return None


def hyperparameters_of(root: Any) -> dict[str, Any]:
    """Scalars of the dicts that people keep them in, nested keys joined by dots; lists as JSON."""
    result: dict[str, Any] = {}
    if not isinstance(root, Mapping):
        return result
    for key in HYPERPARAMETER_KEYS:
        stack: list[tuple[str, Any, int]] = [("", root.get(key), 0)]
        visits = 0  # a list that contains itself has no end
        while stack and len(result) < MOST_HYPERPARAMETERS and visits < _MOST_VISITED:
            name, value, depth = stack.pop()
            visits += 1
            value = _content(value)
            if isinstance(value, Mapping):
                children = list(value.items())
            elif isinstance(value, list | tuple) and name and len(value) <= _MOST_LIST:
                items = [scalar(item) for item in value]
                if not any(a is None and b is not None for a, b in zip(items, value, strict=True)):
                    # As settings in a file say it, so that the two are one hyperparameter.
                    text = dumps(items).decode("utf-8")
                    if len(text) <= _MOST_TEXT:
                        result.setdefault(name, text)
                        continue
                children = list(enumerate(value))
            else:
                plain = scalar(value)
                if name and (plain is not None or value is None):
                    result.setdefault(name, plain)
                continue
            if depth < 16 and len(stack) + len(children) <= MOST_HYPERPARAMETERS:
                prefix = f"{name}." if name else ""
                stack += [
                    (f"{prefix}{child}", inner, depth + 1)
                    for child, inner in reversed(children)
                    if isinstance(child, str | int) and len(prefix) + _size(child) <= _MOST_TEXT
                ]
    return result


def _size(key: str | int) -> int:
    return len(key) if isinstance(key, str) else key.bit_length()


def _content(value: Any) -> Any:
    """What an OmegaConf node holds."""
    if isinstance(value, Call) and value.function.module.startswith("omegaconf."):
        state = value.state
        if isinstance(state, Mapping):
            content = state.get("_content")
            return state.get("_val") if content is None else content
    return value


def scalar(value: Any) -> str | int | float | bool | None:
    """A value as it may stand among hyperparameters; None for anything else."""
    if isinstance(value, Call):
        value = _called(value)
    if isinstance(value, Global):
        return str(value)
    if isinstance(value, str):
        text = value.encode("utf-8", "backslashreplace").decode()
        return text if len(text) <= _MOST_TEXT else None
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 64 else None
    return number(value) if isinstance(value, float) else None


def _called(call: Call) -> Any:
    function, arguments = call.function, call.arguments
    if function.name == "scalar" and len(arguments) == 2:
        return _numpy_scalar(*arguments)
    if function.module.startswith("pathlib") and len(arguments) <= _MOST_LIST:
        if arguments and all(isinstance(part, str) for part in arguments):
            head, *rest = arguments
            return "/".join([head.rstrip("/"), *rest]) if rest else head
    elif str(function) == "torch.device":
        return ":".join(str(part) for part in arguments if isinstance(part, str | int))
    return None


def _numpy_scalar(dtype: Any, raw: Any) -> int | float | bool | None:
    if isinstance(raw, Call) and str(raw.function) == "_codecs.encode":
        # Protocol 2 has no bytes: they are written as the call that makes them of latin-1 text.
        text = raw.arguments[0] if raw.arguments else None
        if not isinstance(text, str) or len(text) > 16 or max(map(ord, text), default=0) > 255:
            return None
        raw = text.encode("latin-1")
    if not isinstance(dtype, Call) or not dtype.arguments or not isinstance(raw, bytes):
        return None
    name = dtype.arguments[0]
    state = dtype.state
    order = state[1] if isinstance(state, tuple) and len(state) > 1 else "<"
    form = _NUMPY_FORMATS.get(name) if isinstance(name, str) else None
    if form is None or struct.calcsize(f"<{form}") != len(raw):
        return None
    (value,) = struct.unpack(f"{'>' if order == '>' else '<'}{form}", raw)
    return None if isinstance(value, float) and math.isnan(value) else value
