"""Modules of the user's: found from one folder first, and gone again where they fail."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dlv.own_code as own_code
from dlv.errors import NotFound, UsageError


@pytest.fixture(autouse=True)
def kept() -> Iterator[None]:
    """Nothing that is imported here stays."""
    modules, path = dict(sys.modules), list(sys.path)
    yield
    for name in sys.modules.keys() - modules.keys():
        del sys.modules[name]
    assert sys.path == path


def test_a_module_and_what_it_imports_itself(tmp_path: Path) -> None:
    (tmp_path / "own_helped.py").write_text("VALUE = 3\n")
    (tmp_path / "own_first.py").write_text("from own_helped import VALUE\n")
    found = own_code.module("own_first", tmp_path)
    assert found.VALUE == 3
    assert own_code.module("own_first", tmp_path / "elsewhere") is found


def test_a_module_may_put_the_path_in_order_itself(tmp_path: Path) -> None:
    (tmp_path / "own_tidy.py").write_text(f"import sys\nsys.path.remove({str(tmp_path)!r})\n")
    own_code.module("own_tidy", tmp_path)


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        (None, NotFound, "no module `own_bad`, of which x is"),
        ("import own_nowhere", NotFound, "the thing `own_bad` cannot be imported"),
        ("1/0", UsageError, "the thing `own_bad` cannot be imported"),
        ("def", UsageError, "the thing `own_bad` cannot be imported"),
    ],
)
def test_what_is_wrong_is_said(
    tmp_path: Path, code: str | None, error: type[Exception], message: str
) -> None:
    if code is not None:
        (tmp_path / "own_bad.py").write_text(code)
    with pytest.raises(error) as told:
        own_code.module("own_bad", tmp_path, about=", of which x is", called="the thing ")
    assert str(told.value) == message
    assert "own_bad" not in sys.modules
