"""A training configuration: template and settings, resolved for one network; the id of a trial."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlv.canonical import dumps, hash_of
from dlv.errors import UsageError, nearest
from dlv.network.graph import Network
from dlv.network.ops.op import op_of
from dlv.network.selector import selector
from dlv.training.fields import CONTRACT, NET, SCHEDULE, TABLES, TORCH, Field, unknown

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
            found[name] = _put(found.get(name, {}), rest, setting)
    if net:
        found["net"] = net
    return found


def _put(table: Any, path: Sequence[str], setting: Setting) -> dict[str, Any]:
    """A copy of the table with one value of it replaced."""
    if not isinstance(table, Mapping):
        raise UsageError(
            f"config.{'.'.join(setting.key)} cannot be set", why=f"{setting.key[0]} is no table"
        )
    word, *rest = path
    value = _put(table.get(word, {}), rest, setting) if rest else setting.value
    return {**table, word: value}


def _net_items(value: Any) -> Iterable[tuple[str, str, Any]]:
    """Selector, key and value, one after the other."""
    if not isinstance(value, Mapping):
        raise UsageError("config.net is no table", why='it holds tables, as [net."conv*"]')
    found = []
    for text, table in value.items():
        where = f'net["{text}"]'
        if not isinstance(table, Mapping):
            raise UsageError(f"config.{where} is {table!r}"[:200], why="it must be a table")
        if table.get("lr") is not None and table.get("lr_mult") is not None:
            raise UsageError(
                f"config.{where} has both lr and lr_mult",
                why="lr is a rate of its own, lr_mult a factor of base_lr",
            )
        for key, each in table.items():
            if key not in NET:
                raise UsageError(
                    f"there is no setting config.{where}.{key}",
                    why=f"of nodes there are {', '.join(NET)}",
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
            f"{where}: no node of the network {network.id[:7]} is called so",
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
            f"{where}: no node with {lacking} is called so in the network {network.id[:7]}",
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
            f"there is no trainer {value!r}"[:200],
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
        raise UsageError("config.env is no table", why='it holds lines such as OMP_NUM_THREADS="1"')
    found = {}
    for name, each in value.items():
        if isinstance(each, bool) or not isinstance(each, (str, int, float)):
            raise UsageError(f"config.env.{name} is {each!r}"[:200], why="it must be a text")
        if not name or "=" in name or "\0" in f"{name}{each}":
            raise UsageError(f"config.env has {name!r}"[:200], why="no variable is called so")
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
                f"there is no setting config.{key}.{name}",
                why=f"there are {', '.join(known)}",
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
                raise UsageError(f"{where} has the key {key!r}, which is no text")
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
                f"config.schedule.{name} is about the schedule {' or '.join(kinds)}",
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
            why="there are no classes to be right about",
        )
