"""Names of the fields of a dataclass, found once for each class: trees are gone through often."""

from __future__ import annotations

from dataclasses import fields, is_dataclass


class _FieldNames(dict[type, "tuple[str, ...] | None"]):
    """None of what is no dataclass."""

    def __missing__(self, kind: type) -> tuple[str, ...] | None:
        names = tuple(each.name for each in fields(kind)) if is_dataclass(kind) else None
        self[kind] = names
        return names


FIELD_NAMES = _FieldNames()
