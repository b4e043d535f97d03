"""`dataclass` as in the standard library, but made in a quarter of the time.

Python 3.11 compiles up to seven methods for every dataclass. A command of dlv defines 30 to 230 of
them before it does anything, which took a fifth of its time. Here `__init__` alone is compiled,
and the other methods are closures. `fields`, `replace`, `asdict`, `pickle` and the type checkers
see no difference; `InitVar` and `order` are not offered.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, slots=False):
        """Return the class as a dataclass; the options mean what they mean in `dataclasses`."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, eq=eq, slots=slots)
        if slots:  # the standard one makes the class anew, and methods for its pickles
            return dataclasses.dataclass(cls, frozen=frozen, eq=eq, slots=True)
        return _completed(cls, frozen, eq)


class _FieldNames(dict[type, "tuple[str, ...] | None"]):
    """The names of a dataclass's fields by class, and None for other classes.

    They are looked up once a class: trees of queries are walked often.
    """

    def __missing__(self, kind: type) -> tuple[str, ...] | None:
        is_one = dataclasses.is_dataclass(kind)
        names = tuple(x.name for x in dataclasses.fields(kind)) if is_one else None
        self[kind] = names
        return names


FIELD_NAMES = _FieldNames()


class _Factory:
    """The default of a field that each object gets a new value for."""

    def __repr__(self) -> str:
        return "<factory>"  # as help() prints the standard one


def _completed(cls: type, frozen: bool, eq: bool) -> type:
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # the standard one would look at the whole signature for it
    written = dict(cls.__dict__)
    dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    fields = dataclasses.fields(cls)
    methods: dict[str, Any] = {"__init__": _init(cls, fields, frozen), "__repr__": _repr}
    if eq:
        methods["__eq__"] = _equality(_values([x.name for x in fields if x.compare]))
        if written.get("__hash__") is None:
            hashed = [x.name for x in fields if (x.compare if x.hash is None else x.hash)]
            cls.__hash__ = _hash(_values(hashed)) if frozen else None  # type: ignore[assignment, method-assign]
    if frozen:
        methods |= _guards(cls, frozenset(x.name for x in fields))
    for name, method in methods.items():
        if name not in written:
            setattr(cls, name, method)
    return cls


def _init(cls: type, fields: tuple[Field[Any], ...], frozen: bool) -> Callable[..., None]:
    """Return `__init__`, which is called too often to be anything but compiled."""
    names: dict[str, Any] = {"SET": object.__setattr__, "NEW": _Factory()}
    parameters, keywords, lines = ["self"], list[str](), list[str]()
    for field in fields:
        name, value = field.name, field.name
        if field.default is not MISSING:
            names[f"DEFAULT_{name}"] = field.default
            parameter = f"{name}=DEFAULT_{name}"
        elif field.default_factory is not MISSING:
            names[f"FACTORY_{name}"] = field.default_factory
            parameter = f"{name}=NEW"
            value = f"FACTORY_{name}()"
            if field.init:
                value += f" if {name} is NEW else {name}"
        else:
            parameter = name
        if field.init:
            (keywords if field.kw_only else parameters).append(parameter)
        elif field.default_factory is MISSING:
            continue
        lines.append(f"SET(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    if keywords:
        parameters += ["*", *keywords]
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines or ["pass"]), names)
    init: Callable[..., None] = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {x.name: x.type for x in fields if x.init} | {"return": None}
    return init


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{x.name}={getattr(self, x.name)!r}" for x in dataclasses.fields(self) if x.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function from an object to the tuple of these fields."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda item: tuple([getattr(item, name) for name in names])


def _equality(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, Any], Any]:
    def equal(self: Any, other: Any) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    return equal


def _hash(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    return lambda self: hash(values(self))


def _guards(cls: Any, names: frozenset[str]) -> Mapping[str, Callable[..., None]]:
    """Return the methods that refuse changes, for a class whose fields are frozen."""

    def set_attribute(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete_attribute(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": set_attribute, "__delattr__": delete_attribute}
