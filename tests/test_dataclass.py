"""dlv's `dataclass` beside the standard one, on the same classes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from dlv.dataclass import dataclass

BODY = {
    "plain": "a: int\n    b: str = 'x'\n    c: list[int] = field(default_factory=list)",
    "single": "a: int",
    "empty": "pass",
    "flags": "a: int = field(compare=False)\n    b: int = field(default=2, repr=False)\n"
    "    c: int = field(default=3, hash=False)\n    d: int = field(default=4, init=False)\n"
    "    e: dict[str, int] = field(default_factory=dict, init=False)",
    "keyword only": "at: int = field(compare=False, kw_only=True, default=0)\n"
    "    seed: int = field(kw_only=True, default=3)\n    a: int\n    b: int = 2",
    "class variable": "kind: ClassVar[str] = 'k'\n    a: int = 1",
    "post init": "a: int\n\n    def __post_init__(self):\n        self.b = object.__setattr__",
    "written": "a: int\n\n    def __repr__(self):\n        return 'written'\n\n"
    "    def __eq__(self, other):\n        return True",
    "written hash": "a: int\n\n    def __hash__(self):\n        return 7",
}
OPTIONS: list[Mapping[str, bool]] = [
    {},
    {"frozen": True},
    {"eq": False},
    {"frozen": True, "eq": False},
    {"frozen": True, "slots": True},
]


def declared(decorator: Callable[..., Any], body: str, options: Mapping[str, bool]) -> Any:
    """Return the class Sample with this body, as the decorator makes it."""
    names = {
        "dataclass": decorator,
        "field": dataclasses.field,
        "ClassVar": ClassVar,
        "__name__": __name__,
    }
    exec(f"class Sample:\n    {body}", names)
    return decorator(**options)(names["Sample"])


def outcome(call: Callable[..., Any], *values: object, **named: object) -> object:
    """Return what the call gives, or what kind of error and text it raises."""
    try:
        return call(*values, **named)
    except Exception as error:
        return type(error), str(error).replace("Sample.__init__()", "__init__()")


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("body", BODY)
def test_as_the_standard_one(body: str, options: Mapping[str, bool]) -> None:
    if body == "post init" and options.get("frozen"):
        pytest.skip("sets a field")
    seen = []
    for decorator in (dataclass, dataclasses.dataclass):
        kind = declared(decorator, BODY[body], options)
        first, second, other = (outcome(kind, value) for value in (1, 1, [2]))
        if not isinstance(first, kind):
            first, second, other = kind(), kind(), kind()
        seen.append(
            [
                repr(first),
                first == second,
                first == other,
                first == 1,
                kind.__hash__ is None,
                options.get("eq", True) and outcome(hash, first),
                options.get("eq", True) and outcome(hash, other),
                outcome(kind, 1, 2, 3, 4, 5, 6),
                outcome(kind, nothing=1),
                [field.name for field in dataclasses.fields(kind)],
                kind.__match_args__,
                dataclasses.asdict(first),
                repr(outcome(dataclasses.replace, first, a=9)),
                repr(copy.deepcopy(first)),
                str(inspect.signature(kind)).replace("'", ""),
                outcome(setattr, first, "a", 5),
                outcome(delattr, first, "a"),
            ]
        )
    assert seen[0] == seen[1]


@dataclass(frozen=True)
class Base:
    a: int
    rest: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Child(Base):
    b: int = 2


class Plain(Base):
    """A subclass that is no dataclass, whose own attributes are free."""


def test_inheritance_and_pickles() -> None:
    child = Child(1, b=3)
    assert pickle.loads(pickle.dumps(child)) == child == Child(1, (), 3)
    assert child != Base(1)
    assert repr(child) == "Child(a=1, rest=(), b=3)"
    plain = Plain(1)
    plain.other = 4  # type: ignore[attr-defined]
    with pytest.raises(dataclasses.FrozenInstanceError, match="'a'"):
        plain.a = 2  # type: ignore[misc]


def test_an_object_inside_itself() -> None:
    inside: list[Any] = []
    base = Base(1, (inside,))
    inside.append(base)
    assert repr(base) == "Base(a=1, rest=([...],))"
