"""The keys of a training configuration that dlv knows: their kinds, defaults, and what is wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlv.errors import UsageError, nearest

MOST_STEPS = 1 << 40


@dataclass(frozen=True)
class Field:
    """One key. `kind`: float, int, text, bool, texts or numbers; `above` excludes its own value."""

    kind: str
    default: Any = None
    choices: tuple[str, ...] = ()
    least: float | None = None
    above: float | None = None
    most: float | None = None

    def read(self, key: str, value: Any) -> Any:
        """The value as it is kept: 1 is 1.0 where a float is meant; UsageError names the key."""
        if value is None and self.default is None:
            return None
        return _READ[self.kind](self, key, value)

    @property
    def wanted(self) -> str:
        """In words, for messages."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        limits = [
            f"{word} {limit:g}"
            for word, limit in (
                ("at least", self.least),
                ("above", self.above),
                ("at most", self.most),
            )
            if limit is not None
        ]
        return " ".join([_WORDS[self.kind], " and ".join(limits)]).strip()


_WORDS = {
    "float": "a number",
    "int": "a whole number",
    "text": "a text",
    "bool": "true or false",
    "texts": "a list of texts",
    "numbers": "a list of whole numbers",
    "table": "a table",
}


def _wrong(field: Field, key: str, value: Any) -> UsageError:
    meant = nearest(value, field.choices) if isinstance(value, str) else []
    return UsageError(
        f"config.{key} is {value!r}"[:200], why=f"it must be {field.wanted}", did_you_mean=meant
    )


def _limits(field: Field, key: str, number: float) -> None:
    if (
        (field.least is not None and number < field.least)
        or (field.above is not None and number <= field.above)
        or (field.most is not None and number > field.most)
    ):
        raise _wrong(field, key, number)


def _float(field: Field, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong(field, key, value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _wrong(field, key, value)
    _limits(field, key, number)
    return number + 0.0  # -0.0 is 0.0


def _int(field: Field, key: str, value: Any) -> int:
    """Floats that are whole are taken, too: a distribution may give them."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong(field, key, value)
    if not math.isfinite(value) or int(value) != value or not -(2**63) <= value < 2**63:
        raise _wrong(field, key, value)
    _limits(field, key, value)
    return int(value)


def _text(field: Field, key: str, value: Any) -> str:
    if not isinstance(value, str) or not value or (field.choices and value not in field.choices):
        raise _wrong(field, key, value)
    return value


def _bool(field: Field, key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(field, key, value)
    return value


def _texts(field: Field, key: str, value: Any) -> list[str]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, Sequence) or not value:
        raise _wrong(field, key, value)
    return [_text(field, key, each) for each in dict.fromkeys(map(_hashable, value))]


def _hashable(value: Any) -> Any:
    return value if isinstance(value, str) else repr(value)


def _numbers(field: Field, key: str, value: Any) -> list[int]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise _wrong(field, key, value)
    return [_int(field, key, each) for each in value]


_READ: Mapping[str, Any] = {
    "float": _float,
    "int": _int,
    "text": _text,
    "bool": _bool,
    "texts": _texts,
    "numbers": _numbers,
}

# Of every trainer.
CONTRACT: Mapping[str, Field] = {
    "steps": Field("int", 1000, least=1, most=MOST_STEPS),
    "log_every": Field("int", 20, least=1, most=MOST_STEPS),
    "seed": Field("int", 0, least=0, most=2**63 - 1),
    "init": Field("text", "reuse", ("reuse", "scratch")),
    "input_data": Field("text"),
    "threads": Field("int", 1, least=1, most=1024),
    "allow_nan": Field("bool", False),
}
# What else the trainer `torch` reads.
TORCH: Mapping[str, Field] = {
    "base_lr": Field("float", 0.01, least=0),
    "batch_size": Field("int", 64, least=1, most=1 << 31),
    "optimizer": Field("text", "sgd", ("sgd", "adam", "adamw")),
    "momentum": Field("float", 0.9, least=0, most=1),
    "nesterov": Field("bool", False),
    "beta1": Field("float", 0.9, least=0, most=1),
    "beta2": Field("float", 0.999, least=0, most=1),
    "epsilon": Field("float", 1e-8, above=0),
    "weight_decay": Field("float", 0.0, least=0),
    "clip_norm": Field("float", above=0),
    "loss": Field("text", "cross_entropy", ("cross_entropy", "mse", "bce")),
    "metrics": Field("texts", choices=("loss", "accuracy")),
    "val": Field("float", 0.2, least=0, most=0.9),
    "dropout": Field("float", least=0, most=1),
    "device": Field("text", "cpu"),
    "deterministic": Field("bool", False),
}
SCHEDULE: Mapping[str, Field] = {
    "kind": Field("text", "constant", ("constant", "step", "cosine")),
    "warmup": Field("int", 0, least=0, most=MOST_STEPS),
    "every": Field("int", least=1, most=MOST_STEPS),
    "gamma": Field("float", 0.1, above=0, most=1),
    "floor": Field("float", 0.0, least=0, most=1),
}
AUGMENT: Mapping[str, Field] = {
    "flip": Field("bool", False),
    "shift": Field("int", 0, least=0, most=1 << 16),
    "noise": Field("float", 0.0, least=0),
}
NET: Mapping[str, Field] = {
    "lr": Field("float", least=0),
    "lr_mult": Field("float", least=0),
    "weight_decay": Field("float", least=0),
    "frozen": Field("bool", False),
    "dropout": Field("float", least=0, most=1),
}
TABLES: Mapping[str, Mapping[str, Field]] = {"schedule": SCHEDULE, "augment": AUGMENT}


def unknown(key: str, known: Sequence[str], whose: str) -> UsageError:
    """The error of a key that nobody reads."""
    return UsageError(
        f"the trainer {whose} has no setting config.{key}",
        did_you_mean=[f"config.{near}" for near in nearest(key, known)],
        hint="another trainer may take it: config.trainer",
    )
