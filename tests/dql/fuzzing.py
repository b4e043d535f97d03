"""Texts that are nearly queries, and a run over many of them.

    python -m tests.dql.fuzzing [COUNT] [SEED] [REPOSITORY]

Each text must give a query or a SyntaxFault with a place in it; with a repository, queries that can
be read are run, too, and must give rows or an error that says what is wrong.
"""

from __future__ import annotations

import itertools
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import dlv.dql.execute as execute
from dlv.dql.outcome import QueryOptions, Table
from dlv.dql.words import parser
from dlv.dql.words.diagnosis import SyntaxFault
from dlv.errors import DlvError
from dlv.repository.handle import Repository

HERE = Path(__file__).resolve().parent
SIGNS = (
    "abmxyzALSE0159_ .,;:()[]{}<>=!+-*/%$#\"'\\|&?@^~`\n\t\r\0\x1b\u00a0“”‘’–→é語\U0001f600\ud800"
)
MOST_ROWS = 20


def valid() -> list[str]:
    lines = (HERE / "valid.txt").read_text(encoding="utf-8").splitlines()
    return [line.replace("\\n", "\n") for line in lines if line.strip()]


def texts(seed: int) -> Iterator[str]:
    """Without end: mostly valid queries with something wrong, sometimes words or signs by lot."""
    lot = random.Random(seed)
    queries = valid()
    words = sorted({word for query in queries for word in _words(query)})
    while True:
        kind = lot.random()
        if kind < 0.85:
            text = lot.choice(queries)
            for _ in range(lot.choice((1, 1, 1, 2, 3, 6))):
                text = _changed(lot, text, queries, words)
        elif kind < 0.95:
            text = " ".join(lot.choice(words) for _ in range(lot.randint(1, 30)))
        else:
            text = "".join(lot.choice(SIGNS) for _ in range(lot.randint(0, 60)))
        yield text


def _words(text: str) -> list[str]:
    found, word = [], ""
    for sign in text + " ":
        if sign.isalnum() or sign == "_":
            word += sign
            continue
        found += [each for each in (word, sign.strip()) if each]
        word = ""
    return found


def _changed(lot: random.Random, text: str, queries: list[str], words: list[str]) -> str:
    at = lot.randint(0, len(text))
    end = min(len(text), at + lot.choice((1, 1, 2, 5, 20)))
    other = lot.choice(queries)
    begin = lot.randint(0, len(other))
    return lot.choice(
        (
            text[:at] + text[end:],
            text[:at] + lot.choice(SIGNS) + text[at:],
            text[:at] + lot.choice(SIGNS) + text[end:],
            text[:at] + text[at:end][::-1] + text[end:],
            text[:at] + text[at:end] * lot.choice((2, 3, 9)) + text[end:],
            text[:at] + f" {lot.choice(words)} " + text[at:],
            text[:at] + lot.choice(words) + text[end:],
            text[:at] + other[begin : begin + 30] + text[at:],
            text[:at],
            text[at:],
            text[:at] + "(" * lot.choice((1, 3, 300)) + text[at:],
            text.swapcase(),
        )
    )


def parsed(text: str) -> bool:
    """Whether it is a query; anything but a fault with its place is an error of ours."""
    try:
        parser.parse(text)
    except SyntaxFault as fault:
        _check(text, fault)
        return False
    return True


def _check(text: str, fault: SyntaxFault) -> None:
    assert 0 <= fault.start <= len(text), fault.start
    assert fault.line >= 1
    assert fault.column >= 1
    line, mark = fault.caret()
    assert line.isprintable() or any("\ud800" <= sign <= "\udfff" for sign in line), line
    assert set(mark) <= {" ", "^"}, mark
    assert "^" in mark
    assert fault.message.startswith(f"dql:{fault.line}:{fault.column}: ")
    assert len(fault.did_you_mean) <= 3


def answered(repository: Repository, text: str) -> str:
    """What became of a query: the name of its error, or of its outcome."""
    asked = QueryOptions({"lr": 0.1, "n": 2}, dry_run=True, author="Ada <ada@example.org>")
    last = "nothing"
    try:
        for outcome in execute.run(repository, text, asked):
            last = type(outcome).__name__
            if isinstance(outcome, Table):
                list(itertools.islice(outcome.rows, MOST_ROWS))
    except DlvError as error:
        if error.exit_code not in (2, 4, 5):
            raise AssertionError("not an error of who asks") from error
        return type(error).__name__
    return last


def main(count: int, seed: int, folder: str | None) -> int:
    repository = None if folder is None else Repository.find(Path(folder))
    found: Counter[str] = Counter()
    faults = 0
    begun = time.monotonic()
    for place, text in enumerate(itertools.islice(texts(seed), count), 1):
        try:
            good = parsed(text)
            found["queries" if good else "refused"] += 1
            if good and repository is not None:
                found[answered(repository, text)] += 1
        except Exception:
            faults += 1
            print(f"{text!r}\n{traceback.format_exc(limit=-4)}", flush=True)
        if place % 50_000 == 0 or place == count:
            spent = time.monotonic() - begun
            print(f"{place} texts, {faults} faults, {spent:.0f} s: {dict(found)}", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(
        main(
            int(given[0]) if given else 100_000,
            int(given[1]) if len(given) > 1 else 0,
            given[2] if len(given) > 2 else None,
        )
    )
