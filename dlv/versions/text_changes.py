"""How many lines of a text were added and removed."""

from __future__ import annotations

import difflib
from typing import NamedTuple

MOST_BYTES = 1 << 20  # difflib takes too long over more
MOST_LINES = 20_000


class LineCounts(NamedTuple):
    added: int
    removed: int


def count(old: bytes, new: bytes) -> LineCounts | None:
    """Lines added and removed; None of what is no text, or too long to compare."""
    if old == new:
        return LineCounts(0, 0)
    if max(len(old), len(new)) > MOST_BYTES or b"\0" in old or b"\0" in new:
        return None
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    before, after = before[head:], after[head:]
    while before and after and before[-1] == after[-1]:
        before.pop()
        after.pop()
    if len(before) + len(after) > MOST_LINES:
        return None
    kept = sum(
        block.size for block in difflib.SequenceMatcher(None, before, after).get_matching_blocks()
    )
    return LineCounts(len(after) - kept, len(before) - kept)
