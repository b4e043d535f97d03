"""A lazy module is imported at its first use and not before."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dlv.lazy import lazy


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"lazily_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_first_use_imports(module: str) -> None:
    stand_in = lazy(module)
    assert repr(stand_in) == f"<lazy module '{module}'>"
    assert module not in sys.modules
    assert stand_in.value == 1
    assert module in sys.modules


def test_it_follows_the_module(module: str) -> None:
    stand_in = lazy(module)
    stand_in.value = 2
    assert sys.modules[module].__dict__["value"] == 2
    assert stand_in.value == 2
    assert "value" in dir(stand_in)
    del stand_in.value
    assert not hasattr(sys.modules[module], "value")


def test_a_missing_module_or_name_fails_at_use(module: str) -> None:
    missing = lazy("dlv.no_such_module")
    with pytest.raises(ModuleNotFoundError):
        _ = missing.anything
    with pytest.raises(AttributeError):
        _ = lazy(module).nothing
