"""Parts of trees: frozen dataclasses of which there are so many that it counts what each takes.

A query needs a hundred and thirty classes of them before its first row. To make one with
`dataclass(frozen=True)` takes .37 ms, most of it to compile six methods that differ in names
alone; here only `__init__` is compiled, which leaves .08 ms. That nobody changes a part is looked
after by mypy, not while the program runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["FIELD_NAMES", "part"]

if TYPE_CHECKING:
    from dlv.dataclass import dataclass as part
else:
    from dlv.dataclass import dataclass

    def part(*, frozen: bool) -> Callable[[type], type]:
        """`@part(frozen=True)`, for what is no more than its fields."""
        assert frozen

        def made(kind: type) -> type:
            made = dataclass(repr=False, eq=False)(kind)
            key = _key([each.name for each in fields(made) if each.compare])

            def equal(first: Any, second: Any) -> Any:
                return (
                    key(first) == key(second)
                    if second.__class__ is first.__class__
                    else NotImplemented
                )

            made.__eq__, made.__hash__, made.__repr__ = equal, lambda one: hash(key(one)), _repr
            return made

        return made


def _key(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What decides whether two are equal."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda one: tuple(getattr(one, name) for name in names)


def _repr(tree: Any) -> str:
    values = (f"{each.name}={getattr(tree, each.name)!r}" for each in fields(tree))
    return f"{type(tree).__qualname__}({', '.join(values)})"


class _FieldNames(dict[type, "tuple[str, ...] | None"]):
    """Names of the fields of a dataclass, found once for each: trees are gone through often.

    None of what is no dataclass.
    """

    def __missing__(self, kind: type) -> tuple[str, ...] | None:
        names = tuple(each.name for each in fields(kind)) if is_dataclass(kind) else None
        self[kind] = names
        return names


FIELD_NAMES = _FieldNames()
