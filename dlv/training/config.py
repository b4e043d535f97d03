"""A training configuration: template and settings, resolved for one network; the id of a trial."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dlv.canonical import dumps, hash_of
from dlv.dataclass import dataclass
from dlv.errors import UsageError, nearest
from dlv.network.graph import Network
from dlv.network.ops.op import op_of
from dlv.network.selector import selector

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
    "text": "a string",
    "bool": "true or false",
    "texts": "a list of strings",
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


Key = tuple[str, ...]
TRAINER = "torch"
NOT_IN_THE_ID = ("log_every", "env", "input_data", "seed", "steps", "trainer")

# What `auto` stands for. Those of `net.lr` are factors of `base_lr`.
AUTO: Mapping[str, tuple[Any, ...]] = {
    "base_lr": (0.0001, 0.001, 0.01, 0.1),
    "net.lr": (0.1, 1.0, 10.0),
    "batch_size": (32, 64, 128),
    "weight_decay": (0.0, 0.0001, 0.01),
    "momentum": (0.0, 0.9, 0.99),
    "optimizer": ("sgd", "adamw"),
    "dropout": (0.0, 0.25, 0.5),
    "net.dropout": (0.0, 0.25, 0.5),
    "seed": (0, 1, 2),
}


@dataclass(frozen=True)
class Setting:
    """One assignment: `config.net["conv*"].lr = 0.1` is ("net", "conv*", "lr"), 0.1."""

    key: Key
    value: Any


@dataclass(frozen=True)
class Config:
    """All defaults filled; `net` by names of nodes, only what was said of each."""

    values: Mapping[str, Any]

    @property
    def trainer(self) -> str | list[str]:
        found: str | list[str] = self.values["trainer"]
        return found

    @property
    def steps(self) -> int:
        return int(self.values["steps"])

    @property
    def log_every(self) -> int:
        return int(self.values["log_every"])

    @property
    def seed(self) -> int:
        return int(self.values["seed"])

    @property
    def input_data(self) -> str | None:
        found: str | None = self.values.get("input_data")
        return found

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def document(self) -> dict[str, Any]:
        """As JSON, keys in order."""
        return {key: self.values[key] for key in sorted(self.values)}


def resolve(template: Mapping[str, Any], settings: Sequence[Setting], network: Network) -> Config:
    """The template with the settings, of which later ones win, for this network.

    UsageError names the key, or the selector that no node of the network fits.
    """
    given = _assigned(template, settings)
    trainer = _trainer(given.pop("trainer", TRAINER))
    net = given.pop("net", [])
    values: dict[str, Any] = {"trainer": trainer}
    known = {**CONTRACT, **(TORCH if trainer == TRAINER else {})}
    for key, field in known.items():
        values[key] = field.read(key, given.pop(key)) if key in given else field.default
    values["env"] = _env(given.pop("env", {}))
    for key in ("data", *TABLES):
        if trainer == TRAINER or key in given:
            values[key] = _table(key, given.pop(key, {}), whole=trainer == TRAINER)
    if trainer == TRAINER:
        for key in given:
            raise unknown(key, [*known, *TABLES, "trainer", "net", "data", "env"], TRAINER)
    else:
        # A trainer of the user's own may mean something else by a name that torch's has, too.
        values.update(given)
    if trainer == TRAINER and values["metrics"] is None:
        values["metrics"] = ["loss"] if values["loss"] == "mse" else ["loss", "accuracy"]
    values["net"] = _expanded(net, network)
    config = Config(_plain(values, "config"))
    _together(config)
    return config


def domain_type(key: Key) -> str | None:
    """float, int, text or bool; None for a key that is not known, or is no single value."""
    field = field_of(key)
    return field.kind if field is not None and field.kind in _SINGLE else None


_SINGLE = ("float", "int", "text", "bool")


def field_of(key: Key) -> Field | None:
    """What is known of a key; its kind, default and limits."""
    if len(key) == 1:
        return {**CONTRACT, **TORCH}.get(key[0])
    if len(key) == 2 and key[0] in TABLES:
        return TABLES[key[0]].get(key[1])
    if len(key) == 3 and key[0] == "net":
        return NET.get(key[2])
    return None


def auto(key: Key) -> tuple[Any, ...] | None:
    """The values that `auto` stands for; None where there are none."""
    return AUTO.get(f"net.{key[2]}" if len(key) == 3 and key[0] == "net" else ".".join(key))


def reads_steps(config: Config) -> bool:
    """Whether the result at a step depends on `config.steps`.

    A trainer of the user's own may read it; unless it says `schedule.kind = "constant"`.
    """
    schedule = config.get("schedule")
    kind = schedule.get("kind") if isinstance(schedule, Mapping) else None
    if config.trainer != TRAINER:
        return bool(kind != "constant")
    return kind == "cosine" or (kind == "step" and config["schedule"]["every"] is None)


def trial_id(
    network_id: str,
    start_hash: str,
    config: Config,
    fingerprints: Mapping[str, str],
    trainer_version: str,
) -> str:
    """The hash of all that decides what comes out of a trial.

    Not of how often it logs, nor of paths: the content of the data counts, by its fingerprint.
    """
    decides = {key: value for key, value in config.values.items() if key not in NOT_IN_THE_ID}
    if reads_steps(config):
        decides["steps"] = config.steps
    return hash_of(
        {
            "network": network_id,
            "start": start_hash,
            "config": decides,
            "data": dict(fingerprints),
            "seed": config.seed,
            "trainer": [config.trainer, trainer_version],
        }
    )


def _assigned(template: Mapping[str, Any], settings: Sequence[Setting]) -> dict[str, Any]:
    """Both as one table; `net` as the list of its assignments, in their order."""
    found: dict[str, Any] = {}
    net: list[tuple[str, str, Any]] = []
    for key, value in template.items():
        if key == "net":
            net += _net_items(value)
        else:
            found[key] = value
    for setting in settings:
        name, *rest = setting.key
        if name == "net":
            nested = setting.value
            for word in reversed(rest):
                nested = {word: nested}
            net += _net_items(nested)
        elif not rest:
            found[name] = setting.value
        else:
            found[name] = _with_value(found.get(name, {}), rest, setting)
    if net:
        found["net"] = net
    return found


def _with_value(table: Any, path: Sequence[str], setting: Setting) -> dict[str, Any]:
    """A copy of the table with one value of it replaced."""
    if not isinstance(table, Mapping):
        raise UsageError(
            f"config.{'.'.join(setting.key)} cannot be set", why=f"{setting.key[0]} is not a table"
        )
    word, *rest = path
    value = _with_value(table.get(word, {}), rest, setting) if rest else setting.value
    return {**table, word: value}


def _net_items(value: Any) -> Iterable[tuple[str, str, Any]]:
    """Selector, key and value, one after the other."""
    if not isinstance(value, Mapping):
        raise UsageError("config.net is not a table", why='use tables such as [net."conv*"]')
    found = []
    for text, table in value.items():
        where = f'net["{text}"]'
        if not isinstance(table, Mapping):
            raise UsageError(f"config.{where} is {table!r}"[:200], why="it must be a table")
        if table.get("lr") is not None and table.get("lr_mult") is not None:
            raise UsageError(
                f"config.{where} has both lr and lr_mult",
                why="lr is a learning rate, lr_mult a factor of base_lr",
            )
        for key, each in table.items():
            if key not in NET:
                raise UsageError(
                    f"no setting config.{where}.{key}",
                    why=f"of layers known: {', '.join(NET)}",
                    did_you_mean=nearest(str(key), NET),
                )
            found.append((str(text), str(key), NET[key].read(f"{where}.{key}", each)))
    return found


def _expanded(items: Sequence[tuple[str, str, Any]], network: Network) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}
    for text, key, value in items:
        for name in matching(text, key, network):
            node = found.setdefault(name, {})
            # Of two ways to say one thing the later counts.
            for other in ("lr", "lr_mult") if key in ("lr", "lr_mult") else (key,):
                node.pop(other, None)
            if value is not None:
                node[key] = value
    return {name: found[name] for name in sorted(found) if found[name]}


def matching(text: str, key: str, network: Network) -> list[str]:
    """The nodes that a selector of `net` means: those that have what the key is about."""
    wanted = selector(text)
    names = [node.name for node in network.nodes if node.name in wanted]
    aliases = network.node_aliases()
    if not names:
        names = [name for name, alias in aliases.items() if alias in wanted]
    where = f'config.net["{text}"].{key}'
    if not names:
        raise UsageError(
            f"{where}: no such layer in the network {network.id[:7]}",
            why=f"it has {', '.join([node.name for node in network.nodes][:8]) or 'none'}",
            did_you_mean=nearest(text, [*(n.name for n in network.nodes), *aliases.values()]),
        )
    nodes = [network.node(name) for name in names]
    if key == "dropout":
        fit = [node.name for node in nodes if op_of(node).dropout]
    else:
        fit = [node.name for node in nodes if node.params]
    if not fit:
        lacking = "a dropout" if key == "dropout" else "weights"
        raise UsageError(
            f"{where}: no such layer with {lacking} in the network {network.id[:7]}",
            why=f"these are without: {', '.join(names[:8])}",
        )
    return fit


def _trainer(value: Any) -> str | list[str]:
    if isinstance(value, str) and value:
        name, _, function = value.partition(":")
        parts = (*name.split("."), function)
        if value == TRAINER or all(part.isidentifier() for part in parts):
            return value
        raise UsageError(
            f"no trainer {value!r}"[:200],
            why='it is "torch", "package.module:function", or a list of words: a program',
            did_you_mean=nearest(value, [TRAINER]),
        )
    words = list(value) if isinstance(value, (list, tuple)) else []
    if words and all(isinstance(word, str) and word and "\0" not in word for word in words):
        return words
    raise UsageError(
        f"config.trainer is {value!r}"[:200],
        why='it is "torch", "package.module:function", or a list such as ["python", "train.py"]',
    )


def _env(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise UsageError("config.env is not a table", why='use lines such as OMP_NUM_THREADS="1"')
    found = {}
    for name, each in value.items():
        if isinstance(each, bool) or not isinstance(each, (str, int, float)):
            raise UsageError(f"config.env.{name} is {each!r}"[:200], why="it must be a string")
        if not name or "=" in name or "\0" in f"{name}{each}":
            raise UsageError(f"config.env has {name!r}"[:200], why="no such variable")
        found[str(name)] = str(each)
    return found


def _table(key: str, value: Any, *, whole: bool) -> dict[str, Any]:
    """`whole`: every key is known, and filled; a trainer of one's own may have others."""
    if not isinstance(value, Mapping):
        raise UsageError(f"config.{key} is {value!r}"[:200], why="it must be a table")
    if not whole or key not in TABLES:  # data is read where the rows are
        return dict(value)
    known = TABLES[key]
    for name in value:
        if name not in known:
            raise UsageError(
                f"no setting config.{key}.{name}",
                why=f"known: {', '.join(known)}",
                did_you_mean=[f"config.{key}.{near}" for near in nearest(str(name), known)],
            )
    return {
        name: field.read(f"{key}.{name}", value[name]) if name in value else field.default
        for name, field in known.items()
    }


def _plain(value: Any, where: str) -> Any:
    """Plain JSON, or UsageError with the place."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise UsageError(f"{where} has the key {key!r}, which is not a string")
        return {key: _plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{where}[{place}]") for place, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{where} is {value}", why="numbers of a configuration are finite")
    try:
        dumps(value)
    except (ValueError, TypeError, UnicodeEncodeError) as error:
        raise UsageError(f"{where} is {value!r}"[:200], why=str(error)) from error
    return value


def _together(config: Config) -> None:
    """What keys that are right by themselves cannot be together."""
    if config.trainer != TRAINER:
        return
    schedule = config["schedule"]
    kind = schedule["kind"]
    usual = {name: field.default for name, field in SCHEDULE.items()}
    of = {"every": ("step",), "gamma": ("step",), "floor": ("cosine",)}
    for name, kinds in of.items():
        if schedule[name] != usual[name] and kind not in kinds:
            raise UsageError(
                f"config.schedule.{name} requires the schedule {' or '.join(kinds)}",
                why=f"config.schedule.kind is {kind}",
            )
    if config["nesterov"] and (config["optimizer"] != "sgd" or not config["momentum"]):
        raise UsageError("config.nesterov needs the optimizer sgd with a momentum")
    for key in ("beta1", "beta2"):
        if config[key] >= 1:
            raise UsageError(f"config.{key} is {config[key]:g}", why="it must be below 1")
    if config["loss"] == "mse" and "accuracy" in config["metrics"]:
        raise UsageError(
            "config.metrics has accuracy, and config.loss is mse",
            why="no classes to be right about",
        )
