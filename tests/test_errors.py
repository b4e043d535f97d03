"""Errors: what they say, in which form, and what was probably meant."""

from __future__ import annotations

import json
import traceback

import pytest

import dlv.errors as errors
from dlv.errors import DlvError, UsageError, nearest, require

CODES = {
    "UsageError": 2,
    "NotARepository": 3,
    "NewerFormat": 3,
    "NotFound": 4,
    "Conflict": 5,
    "Damaged": 6,
    "RemoteError": 7,
    "StorageError": 8,
    "UnsafeInput": 9,
}


def test_every_kind_has_its_code_and_word() -> None:
    kinds = {cls.__name__: cls for cls in DlvError.__subclasses__()}
    assert {name: kinds[name].exit_code for name in CODES} == CODES
    assert len({kinds[name].kind for name in CODES}) == len(CODES)
    assert DlvError.exit_code == 70


def test_parts_and_json() -> None:
    error = errors.NotFound("no x", why="because", hint="dlv list", did_you_mean=("a", "b"))
    assert str(error) == error.message == "no x"
    assert json.loads(json.dumps(error.as_json())) == {
        "error": {
            "code": 4,
            "kind": "not found",
            "message": "no x",
            "why": "because",
            "hint": "dlv list",
            "did_you_mean": ["a", "b"],
        }
    }
    assert errors.Damaged("x").as_json()["error"] == {
        "code": 6,
        "kind": "damage",
        "message": "x",
        "why": None,
        "hint": None,
        "did_you_mean": [],
    }


def test_python_shows_all_of_it() -> None:
    """Who catches nothing sees more than the message: what was meant, and why."""
    error = errors.NotFound("no x", did_you_mean=("a", "b"))
    error.hint = "dlv list"
    error.add_note("in the end")
    lines = traceback.format_exception_only(error)
    assert [line.strip() for line in lines[1:]] == [
        "did you mean 'a' or 'b'?",
        "dlv list",
        "in the end",
    ]
    assert traceback.format_exception_only(errors.NotFound("no x")) == lines[:1]


@pytest.mark.parametrize(
    ("word", "candidates", "found"),
    [
        ("lnet", ["lenet", "resnet", "zzz"], ["lenet", "resnet"]),
        ("LENET", ["lenet"], ["lenet"]),
        ("lenet", ["LeNet"], ["LeNet"]),
        ("x", ["lenet"], []),
        ("abcd", [], []),
        ("conv", ["conv1", "conv2", "conv3", "conv4"], 3),
    ],
)
def test_nearest(word: str, candidates: list[str], found: list[str] | int) -> None:
    result = nearest(word, iter(candidates))
    assert (len(result) if isinstance(found, int) else result) == found


def test_a_missing_extra_becomes_the_pip_line() -> None:
    assert require("json", "x").dumps([]) == "[]"
    with pytest.raises(UsageError, match="`no_such_package`") as caught:
        require("no_such_package.sub", "torch")
    assert caught.value.hint == "pip install 'dlv[torch]'"
