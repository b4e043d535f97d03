"""The zoo: what dlv makes of models that people bring, as a table that is kept.

Printed, and compared with the table beside this file; after a change that is meant, write it again:
.venv/bin/python -m tests.brought.test_table ["LIBRARY NAME" ..]

With --kept the counts of both tables are printed, as they are kept: of the zoo and of ONNX's suite.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

TABLE = Path(__file__).parent / "table.json"
SUITE = Path(__file__).parents[1] / "adapters" / "onnx" / "suite.json"
LIBRARIES = ("transformers", "torchvision", "timm", "keras", "onnxscript")
Row = dict[str, str]


def names() -> list[str]:
    from tests.brought import language, layered, vision

    transformers = [f"transformers {name}" for name in language.MODELS]
    return [*transformers, *vision.NAMES, *(f"keras {name}" for name in layered.names())]


def row_of(name: str) -> Row:
    from tests.brought import language, layered, vision
    from tests.brought.trying import tried

    vision.load_torchvision()  # transformers looks for it, too
    library, _, model = name.partition(" ")
    if library == "keras":
        with tempfile.TemporaryDirectory() as folder:
            return layered.row_of(model, Path(folder))
    made, example = language.build(model) if library == "transformers" else vision.build(name)
    with tempfile.TemporaryDirectory() as folder:
        return tried(made, example, Path(folder))


def _told(name: str) -> tuple[str, Row]:
    try:
        return name, row_of(name)
    except Exception as error:  # the zoo's own, told as such
        return name, {"built": f"traceback: {type(error).__name__}: {str(error)[:100]}"}


def run(wanted: list[str]) -> dict[str, Row]:
    """The rows, each model in a process of its own batch, so that none keeps another's memory."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "KERAS_BACKEND": "torch"}
    found: dict[str, Row] = {}
    with multiprocessing.get_context("spawn").Pool(maxtasksperchild=8) as pool:
        for name, row in pool.imap_unordered(_told, wanted):
            found[name] = row
            odd = {k: v for k, v in row.items() if v != "equal"}
            print(name, odd or "all equal", flush=True)
    return {name: found[name] for name in wanted}


def shown(table: dict[str, Row]) -> str:
    """How many of each column are equal, refused, wrong or a traceback; then ONNX's suite."""
    columns = dict.fromkeys(column for row in table.values() for column in row)
    zoo = {
        column: Counter(row[column].partition(":")[0] for row in table.values() if column in row)
        for column in columns
    }
    return "\n\n".join([_counts(f"{len(table)} models", zoo), *_suite()])


def _suite() -> Iterator[str]:
    """What is kept of ONNX's own cases: by where their inputs come from, and by who runs them."""
    for form, ways in json.loads(SUITE.read_text(encoding="utf-8")).items():
        if isinstance(ways, dict):
            counts: dict[str, Counter[str]] = {way: Counter() for way in ways if ways[way]}
            for way, outcomes in ways.items():
                for outcome, count in outcomes.items():
                    counts[way][outcome.partition(":")[0]] += count
            yield _counts(f"ONNX, {form}", counts)


def _counts(title: str, columns: Mapping[str, Counter[str]]) -> str:
    words = ("equal", "refused", "wrong", "traceback")
    lines = [f"{title:22}" + "".join(f"{word:>10}" for word in words)]
    for column, counts in columns.items():
        lines.append(f"{column:22}" + "".join(f"{counts[word]:10}" for word in words))
    return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
def test_the_zoo_is_as_the_table_says(capsys: Any) -> None:
    from tests.brought import vision

    vision.load_torchvision()
    missing = [library for library in LIBRARIES if find_spec(library) is None]
    if missing:
        pytest.skip(f"the zoo needs {', '.join(missing)}: make test-slow")
    table = run(names())
    with capsys.disabled():
        print("\n" + shown(table))
    kept = json.loads(TABLE.read_text(encoding="utf-8"))
    assert {name: row for name, row in table.items() if row != kept.get(name)} == {}


def test_the_table_holds_no_wrong_answer() -> None:
    cells = [
        (name, column, cell)
        for name, row in json.loads(TABLE.read_text(encoding="utf-8")).items()
        for column, cell in row.items()
    ]
    assert [cell for cell in cells if cell[2].startswith(("wrong", "traceback"))] == []


def main(asked: list[str]) -> None:
    kept = json.loads(TABLE.read_text(encoding="utf-8"))
    if asked != ["--kept"]:
        rows = run(asked or names())
        # Others may have written rows of theirs meanwhile.
        kept = json.loads(TABLE.read_text(encoding="utf-8")) if asked else {}
        kept = {name: {**kept, **rows}[name] for name in names() if name in {**kept, **rows}}
        TABLE.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    print(shown(kept))


if __name__ == "__main__":
    main(sys.argv[1:])
