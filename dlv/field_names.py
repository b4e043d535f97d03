"""Names of the fields of a dataclass, found once for each class: trees are gone through often."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache


@cache
def field_names(kind: type) -> tuple[str, ...] | None:
    """None of what is no dataclass."""
    return tuple(each.name for each in fields(kind)) if is_dataclass(kind) else None
