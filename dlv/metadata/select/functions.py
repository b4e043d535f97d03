"""What SQLite lacks: Unicode folding, selectors, Python's %, stddev, median, exact sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlv.errors import UsageError
from dlv.network.selector import Fixed, Piece, Selector, Wildcard


def pieces_of_like(pattern: str, escape: str | None) -> list[Piece]:
    """% any run, _ one character, and what stands between."""
    if escape is not None and len(escape) != 1:
        raise UsageError(f"{escape!r} cannot escape", why="behind `escape` stands one character")
    found: list[Piece] = []
    signs = iter(pattern)
    for sign in signs:
        if sign == escape:
            sign = next(signs, "")
        elif sign in "%_":
            # Two runs are one, and no slower to look for.
            if not (sign == "%" and found and found[-1] == Wildcard(True)):
                found.append(Wildcard(sign == "%"))
            continue
        if found and isinstance(found[-1], Fixed):
            found[-1] = Fixed(found[-1].text + sign)
        else:
            found.append(Fixed(sign))
    return found


def like_test(pattern: str, escape: str | None, folded: bool) -> Callable[[Any], int | None]:
    """A function of a value: whether it is like that; None if it is no text."""
    if folded:
        pattern = pattern.casefold()
        escape = escape.casefold() if escape is not None else None
    wanted = Selector(pattern, tuple(pieces_of_like(pattern, escape)), {})

    def test(value: Any) -> int | None:
        if not isinstance(value, str):
            return None
        return int((value.casefold() if folded else value) in wanted)

    return test


def selector_test(wanted: Selector) -> Callable[[Any], int | None]:
    return lambda value: int(value in wanted) if isinstance(value, str) else None


def like_of(value: Any, pattern: Any, escape: str | None, folded: int) -> int | None:
    """`like` with a pattern that is known only row by row."""
    if not isinstance(pattern, str):
        return None
    return like_test(pattern, escape, bool(folded))(value)


def modulo(left: Any, right: Any) -> Any:
    """Python's %; null where there is none."""
    return None if left is None or right is None or right == 0 else left % right


FUNCTIONS: dict[str, Callable[..., Any]] = {"dql_modulo": modulo, "dql_like": like_of}
