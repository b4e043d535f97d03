"""Event files that lie here for ever: what TensorBoard read in them when they were written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.events.event_files import as_json, read_run

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "tfevents"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*/*.tfevents")), ids=lambda path: path.stem)
def test_golden_logs(path: Path) -> None:
    expected = json.loads((path.parent / "expected.json").read_text("utf-8"))[path.stem]
    assert len(expected) > 5
    found = json.loads(json.dumps(as_json(read_run([path]))))
    assert found == expected
