"""Objects that notebooks show as HTML: any room may have them, `ui.notebook` draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from dlv.errors import UsageError, require


def frame(rows: Iterable[Sequence[Any]], columns: Sequence[str]) -> Any:
    """A DataFrame of pandas."""
    try:
        pandas = require("pandas", "pandas")
    except UsageError as error:
        error.hint = "pip install pandas"
        raise
    return pandas.DataFrame([tuple(row) for row in rows], columns=list(columns))


class Shown:
    """An object that notebooks show as HTML once the Python API is loaded."""

    draw: ClassVar[Callable[[Any], str | None] | None] = None

    def _repr_html_(self) -> str | None:
        drawing = Shown.draw
        return None if drawing is None else drawing(self)
