from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dlv.adapters.settings as settings_files
from dlv.canonical import dumps
from dlv.errors import DlvError, UsageError
from dlv.network.selector import SelectorFault
from dlv.training import config as configs
from dlv.training.config import (
    AUGMENT,
    AUTO,
    CONTRACT,
    SCHEDULE,
    TORCH,
    Config,
    Setting,
    reads_steps,
    resolve,
    trial_id,
)
from tests.training import small

NET = small.cnn()


def resolved(template: dict[str, Any] | None = None, **settings: Any) -> Config:
    found = [Setting(tuple(key.split("__")), value) for key, value in settings.items()]
    return resolve(template or {}, found, NET)


def test_the_defaults() -> None:
    found = resolved().document()
    assert found == {
        "trainer": "torch",
        "steps": 1000,
        "log_every": 20,
        "seed": 0,
        "init": "reuse",
        "input_data": None,
        "threads": 1,
        "allow_nan": False,
        "base_lr": 0.01,
        "batch_size": 64,
        "optimizer": "sgd",
        "momentum": 0.9,
        "nesterov": False,
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-08,
        "weight_decay": 0.0,
        "clip_norm": None,
        "loss": "cross_entropy",
        "metrics": ["loss", "accuracy"],
        "val": 0.2,
        "dropout": None,
        "device": "cpu",
        "deterministic": False,
        "data": {},
        "schedule": {"kind": "constant", "warmup": 0, "every": None, "gamma": 0.1, "floor": 0.0},
        "augment": {"flip": False, "shift": 0, "noise": 0.0},
        "env": {},
        "net": {},
    }
    assert list(found) == sorted(found)


TOML = """
trainer = "torch"
steps = 500
base_lr = 1
[schedule]
kind = "cosine"
[net."conv*"]
lr = 0.001
[net.fc]
weight_decay = 1e-4
[env]
OMP_NUM_THREADS = "1"
"""
JSON = json.dumps(
    {
        "trainer": "torch",
        "steps": 500.0,
        "base_lr": 1.0,
        "schedule": {"kind": "cosine"},
        "net": {"conv*": {"lr": 1e-3}, "fc": {"weight_decay": 0.0001}},
        "env": {"OMP_NUM_THREADS": 1},
    }
)
YAML = """
trainer: torch
steps: 500
base_lr: 1
schedule: {kind: cosine}
net: {"conv*": {lr: 1e-3}, fc: {weight_decay: 1e-4}}
env: {OMP_NUM_THREADS: 1}
"""


def test_one_configuration_in_three_formats(tmp_path: Path) -> None:
    found = []
    for name, text in (("c.toml", TOML), ("c.json", JSON), ("c.yaml", YAML)):
        (tmp_path / name).write_text(text)
        found.append(resolve(settings_files.read(str(tmp_path / name)), [], NET).document())
    assert found[0]["base_lr"] == 1.0
    assert isinstance(found[0]["base_lr"], float)
    assert found[0]["net"] == {"conv1": {"lr": 0.001}, "fc": {"weight_decay": 0.0001}}
    # As bytes: 1 and 1.0 would make two trials of one.
    assert len({dumps(each) for each in found}) == 1


def test_later_settings_win() -> None:
    found = resolve(
        {"steps": 10, "schedule": {"kind": "step", "every": 3}},
        [
            Setting(("steps",), 20),
            Setting(("steps",), 30),
            Setting(("schedule", "gamma"), 0.5),
            Setting(("momentum",), 0),
        ],
        NET,
    )
    assert found.steps == 30
    assert found["schedule"]["every"] == 3
    assert found["schedule"]["gamma"] == 0.5
    assert repr(found["momentum"]) == "0.0"
    whole = resolved({"schedule": {"kind": "cosine"}}, schedule={"warmup": 5})
    assert whole["schedule"]["kind"] == "constant"
    assert whole["schedule"]["warmup"] == 5


def net(template: dict[str, Any], *later: tuple[str, str, Any]) -> dict[str, Any]:
    given = [Setting(("net", text, key), value) for text, key, value in later]
    found: dict[str, Any] = resolve({"net": template}, given, NET)["net"]
    return found


def test_selectors_mean_names_and_then_aliases() -> None:
    assert net({"conv1": {"lr": 0.1}}) == {"conv1": {"lr": 0.1}}
    assert net({"*": {"lr": 0.1}}).keys() == {"conv1", "bn1", "fc"}  # those with weights
    assert net({"full1": {"lr": 0.1}}) == {"fc": {"lr": 0.1}}  # its alias
    assert net({"norm*": {"frozen": True}}) == {"bn1": {"frozen": True}}
    assert net({"dr*": {"dropout": 0.5}}) == {"drop": {"dropout": 0.5}}


def test_of_several_selectors_on_one_node_the_later_counts() -> None:
    assert net({"conv*": {"lr": 0.1}, "conv1": {"lr": 0.2}})["conv1"] == {"lr": 0.2}
    assert net({"conv1": {"lr": 0.2}, "conv*": {"lr": 0.1}})["conv1"] == {"lr": 0.1}
    assert net({"conv1": {"lr": 0.2, "weight_decay": 0.5}}, ("*", "lr", 0.3)) == {
        "conv1": {"lr": 0.3, "weight_decay": 0.5},
        "bn1": {"lr": 0.3},
        "fc": {"lr": 0.3},
    }
    # A rate and a factor are two ways to say one thing.
    assert net({"conv1": {"lr": 0.2}}, ("conv1", "lr_mult", 0.5)) == {"conv1": {"lr_mult": 0.5}}
    assert net({"conv1": {"lr_mult": 0.5}}, ("conv*", "lr", 0.2)) == {"conv1": {"lr": 0.2}}
    assert net({"conv1": {"lr": 0.2}}, ("conv1", "lr", None)) == {}


def test_settings_of_net_as_tables() -> None:
    found = resolve({}, [Setting(("net",), {"fc": {"lr": 0.1}})], NET)
    assert found["net"] == {"fc": {"lr": 0.1}}
    found = resolve({}, [Setting(("net", "fc"), {"lr": 0.1})], NET)
    assert found["net"] == {"fc": {"lr": 0.1}}


WRONG: list[tuple[dict[str, Any], str, str | None]] = [
    ({"base_rl": 0.1}, "the trainer torch has no setting config.base_rl", "config.base_lr"),
    ({"bsae_lr": 0.1}, "has no setting config.bsae_lr", "config.base_lr"),
    ({"base_lr": "high"}, "config.base_lr is 'high'", None),
    ({"base_lr": True}, "config.base_lr is True", None),
    ({"base_lr": -1}, "config.base_lr is -1", None),
    ({"base_lr": math.nan}, "config.base_lr is nan", None),
    ({"base_lr": math.inf}, "config.base_lr is inf", None),
    ({"base_lr": 10**400}, "config.base_lr is 1000", None),
    ({"base_lr": None}, "config.base_lr is None", None),
    ({"base_lr": [0.1]}, r"config.base_lr is \[0.1\]", None),
    ({"steps": 0}, "config.steps is 0", None),
    ({"steps": 1.5}, "config.steps is 1.5", None),
    ({"steps": math.nan}, "config.steps is nan", None),
    ({"steps": "10"}, "config.steps is '10'", None),
    ({"steps": 1 << 60}, "config.steps is 1152921504606846976", None),
    ({"steps": False}, "config.steps is False", None),
    ({"batch_size": 0}, "config.batch_size is 0", None),
    ({"seed": -1}, "config.seed is -1", None),
    ({"seed": 2**63}, "config.seed is 9223372036854775808", None),
    ({"optimizer": "adma"}, "config.optimizer is 'adma'", "adam"),
    ({"optimizer": "SGD"}, "config.optimizer is 'SGD'", "sgd"),
    ({"loss": "crossentropy"}, "config.loss is 'crossentropy'", "cross_entropy"),
    ({"metrics": []}, "config.metrics is", None),
    ({"metrics": ["f1"]}, "config.metrics is 'f1'", None),
    ({"metrics": [1]}, "config.metrics is '1'", None),
    ({"metrics": 5}, "config.metrics is 5", None),
    ({"loss": "mse", "metrics": ["accuracy"]}, "config.metrics has accuracy", None),
    ({"init": "fresh"}, "config.init is 'fresh'", None),
    ({"allow_nan": 1}, "config.allow_nan is 1", None),
    ({"momentum": 1.5}, "config.momentum is 1.5", None),
    ({"beta1": 1}, "config.beta1 is 1", None),
    ({"epsilon": 0}, "config.epsilon is 0", None),
    ({"val": 1}, "config.val is 1", None),
    ({"input_data": ""}, "config.input_data is ''", None),
    ({"input_data": 5}, "config.input_data is 5", None),
    ({"nesterov": True, "momentum": 0}, "config.nesterov needs", None),
    ({"nesterov": True, "optimizer": "adam"}, "config.nesterov needs", None),
    ({"schedule": "cosine"}, "config.schedule is 'cosine'", None),
    ({"schedule": {"knd": "cosine"}}, "no setting config.schedule.knd", "config.schedule.kind"),
    ({"schedule": {"kind": "linear"}}, "config.schedule.kind is 'linear'", None),
    ({"schedule": {"every": 5}}, "config.schedule.every requires the schedule step", None),
    (
        {"schedule": {"kind": "step", "floor": 0.5}},
        "config.schedule.floor requires the schedule cosine",
        None,
    ),
    ({"augment": {"flp": True}}, "no setting config.augment.flp", "config.augment.flip"),
    ({"data": 5}, "config.data is 5", None),
    ({"env": ["A=1"]}, "config.env is not a table", None),
    ({"env": {"A=B": "1"}}, "config.env has 'A=B'", None),
    ({"env": {"A": "\0"}}, "config.env has 'A'", None),
    ({"env": {"A": [1]}}, r"config.env.A is \[1\]", None),
    ({"net": 5}, "config.net is not a table", None),
    ({"net": {"conv1": 0.1}}, r'config.net\["conv1"\] is 0.1', None),
    ({"net": {"conv1": {"rate": 0.1}}}, r'no setting config.net\["conv1"\].rate', None),
    ({"net": {"conv1": {"lr_mul": 1}}}, "lr_mul", "lr_mult"),
    ({"net": {"conv1": {"lr": 0.1, "lr_mult": 0.5}}}, "has both lr and lr_mult", None),
    ({"net": {"conv1": {"lr": -0.1}}}, r'config.net\["conv1"\].lr is -0.1', None),
    ({"net": {"conv9": {"lr": 0.1}}}, r'config.net\["conv9"\].lr: no such layer', "conv1"),
    ({"net": {"zzz*": {"lr": 0.1}}}, r"no such layer in the network [0-9a-f]{7}", None),
    ({"net": {"relu1": {"lr": 0.1}}}, "no such layer with weights", None),
    ({"net": {"conv1": {"dropout": 0.1}}}, "no such layer with a dropout", None),
    ({"trainer": ""}, "config.trainer is ''", None),
    ({"trainer": "troch"}, "no trainer 'troch'", "torch"),
    ({"trainer": "python train.py"}, "no trainer 'python train.py'", None),
    ({"trainer": "a.b:"}, "no trainer 'a.b:'", None),
    ({"trainer": "../x:train"}, "no trainer", None),
    ({"trainer": []}, r"config.trainer is \[\]", None),
    ({"trainer": ["a", 1]}, "config.trainer is", None),
    ({"trainer": 5}, "config.trainer is 5", None),
    ({"trainer": "a:b", "mine": math.inf}, "config.mine is inf", None),
    ({"trainer": "a:b", "mine": {"deep": [math.nan]}}, r"config.mine.deep\[0\] is nan", None),
    ({"trainer": "a:b", "mine": {1: 2}}, "has the key 1", None),
    ({"trainer": "a:b", "mine": 2**70}, "config.mine is", None),
    ({"trainer": "a:b", "mine": b"x"}, "config.mine is", None),
    ({"trainer": "a:b", "steps": 0}, "config.steps is 0", None),
]


@pytest.mark.parametrize(("template", "said", "meant"), WRONG)
def test_what_is_wrong_is_named(template: dict[str, Any], said: str, meant: str | None) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        resolve(template, [], NET)
    if meant is not None:
        assert meant in caught.value.did_you_mean
    assert caught.value.exit_code == 2


def test_a_broken_selector() -> None:
    with pytest.raises(SelectorFault):
        net({"conv[": {"lr": 0.1}})


def test_settings_into_what_is_no_table() -> None:
    with pytest.raises(UsageError, match="x cannot be set"):
        resolve({"steps": 5}, [Setting(("steps", "x"), 1)], NET)


def test_trainers_of_ones_own_take_any_key() -> None:
    found = resolve(
        {
            "trainer": ["python", "t.py"],
            "optimizer": "lion",
            "base_lr": 3,
            "mine": {"a": [1, None]},
        },
        [Setting(("mine", "b"), 2)],
        NET,
    )
    assert found["optimizer"] == "lion"
    assert found["mine"] == {"a": [1, None], "b": 2}
    assert found.steps == 1000
    assert "momentum" not in found.values


def identity(template: dict[str, Any], **changes: Any) -> str:
    given: dict[str, Any] = {
        "network_id": "n",
        "start_hash": "s",
        "fingerprints": {"input_data": "d"},
        "trainer_version": "1",
        **changes,
    }
    return trial_id(config=resolve(template, [], NET), **given)


SAME: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"log_every": 7}),
    ({}, {"input_data": "elsewhere.npz"}),
    ({}, {"env": {"A": "1"}}),
    ({}, {"steps": 50}),  # of a constant rate, it can be continued
    ({"schedule": {"kind": "step", "every": 5}}, {"steps": 50}),
    ({}, {"net": {"conv1": {"lr": None}}}),
    ({"base_lr": 1}, {"base_lr": 1.0}),
    ({"net": {"conv1": {"lr": 0.5}}}, {"net": {"c*1": {"lr": 0.5}}}),
]
OTHER: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"base_lr": 0.02}),
    ({}, {"seed": 1}),
    ({}, {"threads": 2}),
    ({}, {"data": {"scale": 0.5}}),
    ({}, {"net": {"conv1": {"lr": 0.5}}}),
    ({}, {"trainer": "a:b"}),
    ({"trainer": "a:b"}, {"steps": 50}),  # who knows what it does with them
    ({"schedule": {"kind": "cosine"}}, {"steps": 50}),
    ({"schedule": {"kind": "step"}}, {"steps": 50}),
]


@pytest.mark.parametrize(("template", "change"), SAME)
def test_what_does_not_decide_the_result_is_not_in_the_id(
    template: dict[str, Any], change: dict[str, Any]
) -> None:
    assert identity(template) == identity({**template, **change})


@pytest.mark.parametrize(("template", "change"), OTHER)
def test_what_decides_the_result_is_in_the_id(
    template: dict[str, Any], change: dict[str, Any]
) -> None:
    assert identity(template) != identity({**template, **change})


def test_network_start_data_and_version_are_in_the_id() -> None:
    ids = [
        identity({}),
        identity({}, network_id="m"),
        identity({}, start_hash="t"),
        identity({}, fingerprints={"input_data": "e"}),
        identity({}, trainer_version="2"),
    ]
    assert len(set(ids)) == len(ids)
    constant = {"trainer": "a:b", "schedule": {"kind": "constant"}}
    assert identity(constant) == identity({**constant, "steps": 50})


def test_an_id_stays_what_it_is() -> None:
    """Trials that are done would be run again if it changed by mistake."""
    assert identity({"base_lr": 0.1, "net": {"fc": {"lr_mult": 0.5}}}) == (
        "3b550e5ed17ce91ad9b8d2377b07b664ef7aadbb98d2ef449d66ae4de8327126"
    )


def test_whether_steps_are_read() -> None:
    assert not reads_steps(resolved())
    assert reads_steps(resolved({"schedule": {"kind": "cosine"}}))
    assert reads_steps(resolved({"schedule": {"kind": "step"}}))
    assert not reads_steps(resolved({"schedule": {"kind": "step", "every": 2}}))


def test_types_of_domains() -> None:
    assert configs.domain_type(("base_lr",)) == "float"
    assert configs.domain_type(("batch_size",)) == "int"
    assert configs.domain_type(("optimizer",)) == "text"
    assert configs.domain_type(("net", "conv*", "lr")) == "float"
    assert configs.domain_type(("net", "conv*", "frozen")) == "bool"
    assert configs.domain_type(("schedule", "kind")) == "text"
    assert configs.domain_type(("metrics",)) is None
    assert configs.domain_type(("mine",)) is None
    assert configs.domain_type(("net", "conv*")) is None


def test_auto_has_values_that_are_right() -> None:
    for name in AUTO:
        key = ("net", "conv*", name[4:]) if name.startswith("net.") else (name,)
        field = configs.field_of(key)
        assert field is not None
        values = configs.auto(key)
        assert values is not None
        assert [field.read(name, value) for value in values] == list(values)
    assert configs.auto(("net", "conv*", "frozen")) is None
    assert configs.auto(("mine",)) is None


def test_every_default_is_allowed() -> None:
    for table in (CONTRACT, TORCH, SCHEDULE, AUGMENT):
        for name, field in table.items():
            assert field.read(name, field.default) == field.default


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.floats(), max_size=2),
)
keys = st.sampled_from([*CONTRACT, *TORCH, "schedule", "augment", "net", "data", "env", "trainer"])


@given(st.dictionaries(keys, values, max_size=4))
def test_whatever_is_given_there_is_a_configuration_or_one_error(given: dict[str, Any]) -> None:
    try:
        found = resolve(given, [], NET)
    except DlvError:
        return
    text = dumps(found.document())
    again = resolve({k: v for k, v in found.document().items() if k != "net"}, [], NET)
    assert dumps({**again.document(), "net": {}}) == dumps({**json.loads(text), "net": {}})


def test_it_loads_nothing_slow() -> None:
    code = (
        "import sys, dlv.training.config, dlv.training.trainers.contract\n"
        "print([m for m in ('numpy', 'torch', 'ray', 'optuna') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_callers_can_look_up_keys() -> None:
    found = resolved({"base_lr": 0.5})
    look: Callable[[str], Any] = found.get
    assert (found["base_lr"], look("nothing"), found.get("nothing", 3)) == (0.5, None, 3)
