"""NaN in SQLite, which makes a null of one: it is kept as an empty blob.

A blob stands behind every number, so that `<` and `<=` of SQLite are right where it is on the
left, and wrong where it is on the right.
"""

from __future__ import annotations

import math
from typing import Any

BLOB = b""
NAN = "x''"  # as SQL


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def stored(value: float | None) -> float | bytes | None:
    """As SQLite gets it."""
    return BLOB if value is not None and math.isnan(value) else value


def known(value: Any) -> Any:
    """The inverse of `stored`; anything else stays as it is."""
    return math.nan if value == BLOB else value
