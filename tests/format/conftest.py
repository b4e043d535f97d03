"""The golden packs of weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="session")
def golden() -> dict[Path, dict[str, Any]]:
    """Pack -> its SHA-256, and the names of its matrices and tables."""
    found: dict[Path, dict[str, Any]] = {}
    for folder in (GOLDEN / "weights" / "1", GOLDEN / "halved" / "1"):
        contents = json.loads((folder / "contents.json").read_text(encoding="utf-8"))
        assert {path.name for path in folder.glob("*.pack")} == set(contents)
        found |= {folder / name: rows for name, rows in contents.items()}
    return found
