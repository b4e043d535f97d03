"""Selectors: `conv[1,3,5]`, `layer*.bn?`, `conv*($1)`; what a name has to look like.

    *        any run of characters          ?        one character
    [1,3,5]  one of these texts             [8-12]   a number in a range, [a-f] a letter
    [!7]     a number or one character that is none of these
    \\x       x itself                       ($1)     keeps what the wildcard before it stood for

Whole names are matched, upper and lower case apart. The time that takes grows with the square of
the length of the name times that of the selector, whatever they are.
"""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from types import FrameType

from dlv.dataclass import dataclass
from dlv.errors import UsageError

SECONDS = 1.0  # of the processor, for all names together

Search = Callable[[str], "re.Match[str] | None"]


LONGEST = 1000  # characters of a selector


class SelectorFault(UsageError):
    """A text that is no selector; `place` counts its characters from 0."""

    def __init__(self, message: str, text: str, place: int, *, hint: str | None = None) -> None:
        super().__init__(
            f"the selector {text!r}: {message}", why=f"at character {place + 1}", hint=hint
        )
        self.place = place


@dataclass(frozen=True)
class Fixed:
    """This text."""

    text: str

    def ends(self, name: str, start: int) -> Iterator[int]:
        if name.startswith(self.text, start):
            yield start + len(self.text)


@dataclass(frozen=True)
class Wildcard:
    """One character, or a run of them, the longest first."""

    many: bool

    def ends(self, name: str, start: int) -> Iterator[int]:
        if self.many:
            yield from range(len(name), start - 1, -1)
        elif start < len(name):
            yield start + 1


@dataclass(frozen=True)
class Range:
    """Numbers, as they are written without zeros in front, or letters."""

    low: str
    high: str

    @property
    def numbers(self) -> bool:
        return self.low.isdigit()

    def ends(self, name: str, start: int) -> Iterator[int]:
        if not self.numbers:
            if self.low <= name[start : start + 1] <= self.high:
                yield start + 1
            return
        for length in range(len(self.high), 0, -1):
            part = name[start : start + length]
            plain = len(part) == length and part.isascii() and part.isdigit()
            if plain and str(int(part)) == part and int(self.low) <= int(part) <= int(self.high):
                yield start + length


@dataclass(frozen=True)
class Choice:
    """One of several, or none of them."""

    items: tuple[Fixed | Range, ...]
    negated: bool = False

    def ends(self, name: str, start: int) -> Iterator[int]:
        if not self.negated:
            yield from sorted({e for item in self.items for e in item.ends(name, start)})[::-1]
        elif start < len(name):
            run = re.compile(r"[0-9]+|.", re.DOTALL).match(name, start)
            end = run.end() if run else start + 1
            if not any(end in item.ends(name, start) for item in self.items):
                yield end


Piece = Fixed | Wildcard | Choice


@dataclass(frozen=True)
class Selector:
    """Its pieces in order; `captures`: number of a capture -> which piece it keeps."""

    text: str
    pieces: tuple[Piece, ...]
    captures: Mapping[int, int]

    @cached_property
    def prefix(self) -> str:
        """What every name that fits begins with."""
        first = self.pieces[0] if self.pieces else None
        return first.text if isinstance(first, Fixed) else ""

    @property
    def literal(self) -> str | None:
        """The one name that fits, if there is just one."""
        return self.prefix if all(isinstance(each, Fixed) for each in self.pieces) else None

    def match(self, name: str) -> dict[int, str] | None:
        """What the captures stand for; None if the name does not fit."""
        ends = self._ends(name)
        if ends is None:
            return None
        starts = [0, *ends]
        return {number: name[starts[at] : ends[at]] for number, at in self.captures.items()}

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._ends(name) is not None

    def _ends(self, name: str) -> list[int] | None:
        """Where each piece ends: the first way that works, tried longest first."""
        failed: set[tuple[int, int]] = set()
        ends: list[int] = []
        waiting = [iter((0,))]
        while waiting:
            end = next(waiting[-1], None)
            depth = len(waiting) - 1
            if end is None:
                waiting.pop()
                if waiting:
                    failed.add((depth - 1, ends.pop()))
                continue
            if (depth, end) in failed:
                continue
            if depth == len(self.pieces):
                if end == len(name):
                    return [*ends[1:], end] if depth else []
                continue
            ends.append(end)
            waiting.append(self.pieces[depth].ends(name, end))
        return None


def selector(text: str) -> Selector:
    """SelectorFault where it is none, with the place."""
    if len(text) > LONGEST:
        raise SelectorFault("it is too long", text[:20], LONGEST)
    pieces: list[Piece] = []
    captures: dict[int, int] = {}
    at = 0
    while at < len(text):
        sign = text[at]
        if sign in "*?":
            pieces.append(Wildcard(sign == "*"))
            at += 1
        elif sign == "[":
            piece, at = _choice(text, at)
            pieces.append(piece)
        elif sign == "(":
            number, end = _capture(text, at)
            if not pieces or isinstance(pieces[-1], Fixed) or len(pieces) - 1 in captures.values():
                pieces.append(Wildcard(True))
            if number in captures:
                raise SelectorFault(f"(${number}) is used twice", text, at)
            captures[number] = len(pieces) - 1
            at = end
        elif sign in ")]":
            raise SelectorFault(f"unexpected {sign!r}", text, at, hint=f"write \\{sign} for {sign}")
        else:
            plain, at = _plain(text, at)
            if pieces and isinstance(pieces[-1], Fixed):
                pieces[-1] = Fixed(pieces[-1].text + plain)
            else:
                pieces.append(Fixed(plain))
    return Selector(text, tuple(pieces), captures)


def filled(text: str, captures: Mapping[int, str]) -> str:
    """`relu$1` with what was captured in the place of $1; `\\$` is a dollar."""

    def put(found: re.Match[str]) -> str:
        if found[0][0] == "\\":
            return found[0][1]
        number = int(found[1])
        if number not in captures:
            raise SelectorFault(
                f"nothing was captured as ${number}",
                text,
                found.start(),
                hint=f"write (${number}) after a wildcard",
            )
        return captures[number]

    return re.sub(r"\\[\\$]|\$([0-9])", put, text)


def _plain(text: str, at: int) -> tuple[str, int]:
    if text[at] != "\\":
        return text[at], at + 1
    if at + 1 == len(text):
        raise SelectorFault("a backslash at the end", text, at, hint="write \\\\ for a backslash")
    return text[at + 1], at + 2


def _capture(text: str, at: int) -> tuple[int, int]:
    found = re.compile(r"\(\$([1-9])\)").match(text, at)
    if found is None:
        raise SelectorFault(
            "unexpected '('", text, at, hint="captures are ($1) to ($9); write \\( for ("
        )
    return int(found[1]), found.end()


def _choice(text: str, at: int) -> tuple[Choice, int]:
    begin, at = at, at + 1
    negated = text.startswith("!", at)
    at += negated
    items: list[Fixed | Range] = []
    while True:
        first, at = _item(text, at, begin)
        if text.startswith("-", at):
            last, at = _item(text, at + 1, begin)
            items.append(_range(text, begin, first, last))
        elif first:
            items.append(Fixed(first))
        else:
            raise SelectorFault("the brackets are empty", text, begin)
        if text.startswith("]", at):
            return Choice(tuple(items), negated), at + 1
        at += 1


def _item(text: str, at: int, begin: int) -> tuple[str, int]:
    """A text up to a comma, a minus or the closing bracket."""
    found = ""
    while at < len(text) and text[at] not in ",-]":
        plain, at = _plain(text, at)
        found += plain
    if at == len(text):
        raise SelectorFault("'[' is not closed", text, begin, hint="write \\[ for [")
    return found, at


def _range(text: str, at: int, first: str, last: str) -> Range:
    numbers = all(end.isascii() and end.isdigit() and len(end) < 19 for end in (first, last))
    letters = all(len(end) == 1 and end.isalpha() for end in (first, last))
    if not numbers and not letters:
        raise SelectorFault(
            f"{first}-{last} is not a range",
            text,
            at,
            hint="ranges are of numbers or of letters; write \\- for -",
        )
    ordered = int(first) <= int(last) if numbers else first <= last
    if not ordered:
        raise SelectorFault(f"{first}-{last} is empty", text, at, hint=f"write {last}-{first}")
    return Range(first, last)


# Regular expressions that somebody typed: looked for in names, but not for ever.


class _OverError(Exception):
    """The time is."""


def searching(pattern: re.Pattern[str], seconds: float = SECONDS) -> Search:
    """`pattern.search`, until its time is over: (a+)+ takes years on a long name.

    Python breaks off a search for a signal alone, and gets signals in the main thread alone; in
    another thread there is no limit.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(
        signal, "setitimer"
    ):
        return pattern.search
    left = seconds

    def search(text: str) -> re.Match[str] | None:
        nonlocal left
        if left <= 0:
            raise _over_time(pattern, text)
        began = time.thread_time()
        before = signal.signal(signal.SIGVTALRM, _over)
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, max(left, 1e-3))  # 0 would be no limit
            try:
                return pattern.search(text)
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        except _OverError:
            raise _over_time(pattern, text) from None
        finally:
            # What the timer has left says too little: some kernels count it in whole ticks, and
            # many searches shorter than a tick would cost nothing.
            left -= time.thread_time() - began
            signal.signal(signal.SIGVTALRM, signal.SIG_DFL if before is None else before)

    return search


def _over_time(pattern: re.Pattern[str], text: str) -> UsageError:
    return UsageError(
        "the regular expression takes too long",
        why=f're"{pattern.pattern}" was broken off at a name of {len(text)} characters',
        hint="do not nest repeats: write a+ instead of (a+)+",
    )


def _over(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise _OverError
