"""What is true of an operator stands in `dlv/network/ops`: others ask its record, not its name."""

from __future__ import annotations

import ast
from pathlib import Path

import dlv
from dlv.network.vocabulary import OPS

ROOT = Path(dlv.__file__).parent
# Who may write the names of operators, each with its reason.
MAY_NAME_OPERATORS = {
    "network/ops/": "where each operator's record stands",
    "adapters/": "formats say which of their operators is which",
    "network/torch/ops.py": "the table of torch's functions",
    "network/onnx/": "ONNX's functions under the names that ONNX gives them",
    "network/suffix/": "an own walk through few operators, which leaves with the suffix metric",
    "demo/training.py": "writes a network",
    "metadata/database.py": "FULL is a word of SQLite's, too",
}


def named(path: Path) -> list[str]:
    """Names of operators among the strings of a file, docstrings aside."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        f"{path.relative_to(ROOT)}:{part.lineno}: {part.value}"
        for part in ast.walk(tree)
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value in OPS
    ]


def test_nobody_else_names_an_operator() -> None:
    allowed = tuple(MAY_NAME_OPERATORS)
    files = [
        path
        for path in sorted(ROOT.rglob("*.py"))
        if not path.relative_to(ROOT).as_posix().startswith(allowed)
    ]
    assert [found for path in files for found in named(path)] == []


def test_each_exception_is_one() -> None:
    for place in MAY_NAME_OPERATORS:
        files = [ROOT / place] if place.endswith(".py") else [*(ROOT / place).rglob("*.py")]
        assert any(map(named, files)), place
