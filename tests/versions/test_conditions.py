"""Conditions of `list --where`: what they mean, and what is said of those that make no sense."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.errors import NotFound, UsageError
from dlv.metadata.metrics import Summary
from dlv.versions.conditions import find, parse

METRICS = {
    "accuracy": Summary("", "accuracy", "0" * 64, 3, 3, 0.9, 0.5, 1, 0.95, 2),
    "val/loss": Summary("val", "loss", "0" * 64, 3, 3, 0.2, 0.1, 2, 2.0, 1),
    "broken": Summary("", "broken", "0" * 64, 1, 1, None, None, None, None, None, 1),
    "my metric": Summary("", "my metric", "0" * 64, 1, 1, 1.0),
}
PARAMETERS: dict[str, Any] = {
    "lr": 0.1,
    "epochs": 20,
    "optimizer.name": "sgd",
    "nesterov": True,
    "schedule": None,
    "layers": [1, 2],
    "seed": "007",
}


def holds(text: str) -> bool:
    return all(term.holds(METRICS, PARAMETERS) for term in parse(text, METRICS, PARAMETERS))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("accuracy>0.8", True),
        ("accuracy > 0.9", False),
        ("accuracy>=.9", True),
        ("accuracy.max>0.94", True),
        ("accuracy.min>0.94", False),
        ("accuracy.last=9e-1", True),
        ("val/loss<0.3 and accuracy>0.8", True),
        ("val/loss<0.3 and accuracy>0.95", False),
        ("val/loss.min<0.2  and  lr=0.1", True),
        ("lr=0.1", True),
        ("lr==0.10", True),
        ("lr!=0.1", False),
        ("epochs<=20", True),
        ("epochs=20.0", True),
        ("optimizer.name=sgd", True),
        ("optimizer.name='sgd'", True),
        ('optimizer.name!="adam"', True),
        ("nesterov=true", True),
        ("nesterov=True", True),
        ("nesterov=1", False),
        ("nesterov!=1", True),
        ("schedule=none", True),
        ("schedule!=5", False),
        ("seed=007", True),
        ("seed=7", False),
        ("'my metric'>=1", True),
        ("lr<abc", False),
        ("layers=1", False),
        ("broken>0", False),
        ("broken<=0", False),
    ],
)
def test_meaning(text: str, expected: bool) -> None:
    assert holds(text) is expected


def test_a_version_without_the_value_never_fits() -> None:
    for text in ("accuracy>0", "accuracy!=0", "lr!=5"):
        (term,) = parse(text, METRICS, PARAMETERS)
        assert not term.holds({}, {})
    (term,) = parse("schedule=none", METRICS, PARAMETERS)
    assert not term.holds(METRICS, {})


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["<", "<=", ">", ">=", "=", "!="]),
)
def test_numbers_compare_as_in_python(value: float, op: str) -> None:
    (term,) = parse(f"lr {op} {value!r}", METRICS, PARAMETERS)
    symbol = "==" if op == "=" else op
    assert term.holds(METRICS, PARAMETERS) is eval(f"0.1 {symbol} {value!r}")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is missing"),
        ("accuracy", "no comparison"),
        ("accuracy 0.9", "no comparison (at `0.9`)"),
        ("accuracy>", "a value is missing after `accuracy>`"),
        (">0.9", "is missing (at `>0.9`)"),
        ("accuracy>0.9 and", "is missing"),
        ("accuracy>0.9 or lr=1", "joined by `and`"),
        ("accuracy>0.9 lr=1", "`lr=1`; quote"),
        ("optimizer.name=a b", "quote values"),
        ("accuracy>=<0.9", "a value is missing"),
        ("accuracy>'0.9", "a value is missing"),
    ],
)
def test_faults(text: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text, METRICS, PARAMETERS)
    assert why in str(caught.value.why)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("acuracy", ["accuracy"]),
        ("name", ["optimizer.name"]),
        ("accuracy.mx", ["accuracy.max"]),
        ("zzz", []),
    ],
)
def test_unknown_names(name: str, meant: list[str]) -> None:
    with pytest.raises(NotFound) as caught:
        find(name, METRICS, PARAMETERS)
    assert caught.value.did_you_mean == meant


def test_the_last_part_of_a_name() -> None:
    assert find("loss", METRICS, PARAMETERS).name == "val/loss"
    with pytest.raises(UsageError, match="is ambiguous: test/loss, val/loss"):
        find("loss", {"test/loss", "val/loss"}, set())


def test_a_hyperparameter_outdoes_a_metric() -> None:
    assert find("lr", {"lr"}, {"lr"}).figure is None
    assert find("lr.last", {"lr"}, {"lr"}).figure == "last"


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(UsageError, NotFound):
        parse(text, METRICS, PARAMETERS)
