"""ONNX's own backend tests: what dlv makes of each is what ONNX wants, or is refused.

The table beside this file counts the outcomes; after a change that is meant, write it again:
.venv/bin/python -m tests.adapters.onnx.test_suite
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path

import onnx
import pytest
import torch

from tests.onnx_suite import FORMS, WAYS, Outcome, cases, formed, outcomes, reason

TABLE = Path(__file__).parent / "suite.json"
Found = dict[str, dict[str, Outcome]]


def run(form: str, folder: Path) -> Found:
    torch.set_num_threads(1)
    found = {}
    for case in cases():
        changed = formed(case, form)
        if changed is not None:
            found[f"{case.kind} {case.name}"] = outcomes(changed, folder)
    return found


def counted(found: Found) -> dict[str, dict[str, int]]:
    """By way: how often each outcome."""
    table = {}
    for way in ("import", *WAYS):
        counts = Counter(reason(each[way]) for each in found.values() if way in each)
        table[way] = dict(sorted(counts.items()))
    return table


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_wrong(form: str, tmp_path: Path) -> None:
    found = run(form, tmp_path)
    faults = [
        f"{name}: {way}: {outcome.word}: {outcome.why[:200]}"
        for name, each in found.items()
        for way, outcome in each.items()
        if outcome.word in ("wrong", "traceback")
    ]
    assert faults == []
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    if table["onnx"] == onnx.__version__:  # another one has other cases
        assert counted(found) == table[form]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        written = {form: counted(run(form, Path(folder))) for form in FORMS}
    text = json.dumps({"onnx": onnx.__version__, **written}, indent=1)
    TABLE.write_text(text + "\n", encoding="utf-8")
