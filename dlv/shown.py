"""What notebooks show in place of a name: any room may have such objects, one place draws them."""

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
    """An object with a picture of itself; the Python API says how it is drawn."""

    draw: ClassVar[Callable[[Any], str | None] | None] = None

    def _repr_html_(self) -> str | None:
        drawing = Shown.draw
        return None if drawing is None else drawing(self)
