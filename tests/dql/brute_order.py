"""In which order rows come, and which of them are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.dql.brute_model import Version
from tests.dql.brute_truth import Moment, Other, is_nan, kind

_RANK = ("boolean", "number", "text", "other", "time", "list", "version")

Compare = Callable[[Any, Any], int]


def _plain(value: Any) -> Any:
    match value:
        case Moment(at):
            return at
        case Other(text):
            return text
        case Version():
            return value.id
    return value


def same(value: Any) -> Any:
    """Equal for values that are; one NaN is like another."""
    return ("NaN",) if is_nan(value) else (kind(value), _plain(value))


def ascending(a: Any, b: Any) -> int:
    """NaN behind all values, and nulls last; versions by their id."""
    if a is None or b is None:
        return (a is None) - (b is None)
    if is_nan(a) or is_nan(b):
        return is_nan(a) - is_nan(b)
    left, right = (_RANK.index(kind(a)), _plain(a)), (_RANK.index(kind(b)), _plain(b))
    return (left > right) - (left < right)


def newest(a: Any, b: Any) -> int:
    """Versions: the newest first; anything else ascending."""
    if isinstance(a, Version) and isinstance(b, Version) and a.created != b.created:
        return -1 if a.created > b.created else 1
    return ascending(a, b)


def asked(descending: bool, nulls_first: bool | None) -> Compare:
    """As `order by` says: nulls stand last unless it says otherwise."""

    def compare(a: Any, b: Any) -> int:
        if a is None or b is None:
            found = (a is None) - (b is None)
            return -found if nulls_first else found
        if is_nan(a) or is_nan(b):  # never the best, whichever way
            return is_nan(a) - is_nan(b)
        return -ascending(a, b) if descending else ascending(a, b)

    return compare
