"""What notebooks show: every kind of object, tables as DataFrames, names on Tab."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

import dlv
from dlv.shown import Shown
from tests.commands.test_reports import Page
from tests.ui.conftest import HOSTILE, ROOT

NOTEBOOK = ROOT / "examples" / "notebook" / "dlv.ipynb"


def shown(value: Any) -> str:
    """Its HTML, which loads and runs nothing."""
    text = value._repr_html_()
    assert isinstance(text, str)
    page = Page(text)
    assert page.scripts == 0
    assert page.loads == page.handlers == []
    return text


@pytest.fixture
def repo(demo: Path) -> Any:
    return dlv.open(demo)


def test_every_kind_is_shown(repo: Any, demo: Path) -> None:
    version = repo["lenet@1"]
    assert "lenet@3" in shown(repo)
    assert "Only" not in shown(version)
    assert "conv1" in shown(version.network)
    assert "where weights moved".capitalize() in shown(repo.diff("lenet@1", "lenet@3"))
    assert "lenet@2" in shown(repo.query("select m"))
    assert "<svg" in shown(repo.curves("lenet@1"))
    found = version.evaluate(demo / "test.npz", confusion=True, save=False)
    assert "confusion" in shown(found)
    derived = repo.query('construct d from m where m = "lenet@1" mutate m["conv1"].out = 4')
    assert "network" in shown(derived)
    assert "conv1" in shown(derived.networks[0])
    assert "nothing matches" in shown(repo.query('select m where m.name = "x"'))


def test_tables_become_data_frames(repo: Any, demo: Path) -> None:
    pytest.importorskip("pandas")
    frame = repo.to_pandas()
    assert list(frame["version"]) == [version.label for version in repo]
    assert frame["loss"].notna().all()
    tensors = repo["lenet@1"].to_pandas()
    assert dict(zip(tensors["tensor"], tensors["shape"], strict=True)) == {
        name: shape for name, (_, shape) in repo["lenet@1"].tensors.items()
    }
    moved = repo.diff("lenet@1", "lenet@3").to_pandas()
    assert set(moved["tensor"]) == set(tensors["tensor"])
    assert (moved["relative_l2"].dropna() > 0).all()
    result = repo["lenet@1"].evaluate(demo / "test.npz", save=False)
    assert len(result.to_pandas()) == result.rows


def test_names_come_on_tab(repo: Any) -> None:
    assert {"lenet", "lenet@1"} <= set(repo._ipython_key_completions_())
    version = repo["lenet@1"]
    assert set(version._ipython_key_completions_()) == set(version.tensors)
    curves = repo.curves("lenet@1")
    assert "loss" in curves._ipython_key_completions_()
    assert len(curves["loss"]["lenet@1"].values) > 1
    assert version["conv1.weight"].shape == version.tensors["conv1.weight"][1]


def test_tab_in_ipython_itself(demo: Path) -> None:
    ipython = pytest.importorskip("IPython.core.interactiveshell")
    completer = pytest.importorskip("IPython.core.completer")
    shell = ipython.InteractiveShell()
    shell.user_ns["repo"] = dlv.open(demo)
    shell.user_ns["version"] = shell.user_ns["repo"]["lenet@1"]

    def names(code: str) -> set[str]:
        with completer.provisionalcompleter():
            return {found.text for found in shell.Completer.completions(code, len(code))}

    assert any("lenet@1" in name for name in names('repo["len'))
    assert any("conv1.weight" in name for name in names('version["conv1'))


def test_what_cannot_be_read_has_its_name(demo: Path, tmp_path: Path) -> None:
    with dlv.open(tmp_path, create=True) as empty:
        assert "0 versions" in shown(empty)
        version = empty.commit("nothing", name="bare", allow_empty=True)
        assert "bare@1" in shown(version)


def test_hostile_names(hostile_once: Path) -> None:
    repo = dlv.open(hostile_once)
    for value in (repo, repo["evil@1"], repo.diff("evil@1", "evil@2"), repo.curves("evil@2")):
        text = shown(value)
        assert "<img" not in text
        assert "\u202e" not in text
    assert HOSTILE not in shown(repo)


def test_the_style_stays_within_the_cell(repo: Any) -> None:
    text = shown(repo)
    style = text[text.index("<style>") + 7 : text.index("</style>")]
    assert style.startswith(".dlv-shown {")
    assert style.count("{") == style.count("}")
    assert ":root" not in style


def test_without_the_api_nothing_is_drawn() -> None:
    drawing = Shown.draw
    Shown.draw = None
    try:
        assert Shown()._repr_html_() is None
    finally:
        Shown.draw = drawing


def test_the_example_runs(tmp_path: Path) -> None:
    nbformat: Any = pytest.importorskip("nbformat")
    client: Any = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    environ = dict(os.environ, PYTHONPATH=str(ROOT), IPYTHONDIR=str(tmp_path / "ipython"))
    kernel = client.NotebookClient(
        notebook,
        timeout=240,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    kernel.execute(env=environ)
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown_as_html = [
        any("text/html" in output.get("data", {}) for output in cell.outputs) for cell in codes
    ]
    assert sum(shown_as_html) >= 8
    # As committed it holds no results, so that its changes can be read.
    held = json.loads(NOTEBOOK.read_text())
    assert all(not cell.get("outputs") for cell in held["cells"])
    assert not re.search(r"/home|/root|/work", NOTEBOOK.read_text())
