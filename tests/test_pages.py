"""What README.md and docs/ show of sessions and programs is what happens."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("console", ROOT / "tools" / "console.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


console = load()
PAGES = [page for page in console.PAGES if page.name not in console.GENERATED]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = console.make_demo(tmp_path_factory.mktemp("pages"))
    return made


def plain(text: str) -> list[str]:
    """Without what differs between runs and machines: ids, numbers, ages, curves, widths."""
    text = re.sub(r"\b[0-9a-f]{7,64}\b", "ID", text)
    text = re.sub(r"just now|\b[0-9]+ \w+ ago", "AGE", text)
    text = re.sub(r"[▁▂▃▄▅▆▇█]+", "CURVE", text)
    text = re.sub(r"[-+]?[0-9][0-9.,]*(e[-+]?[0-9]+)?( ([kM]?B|µs|ms|s)\b)?", "N", text)
    return [re.sub(r"[\s─]+", " ", line).strip() for line in text.splitlines()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sessions_print_what_is_shown(page: Path, demo: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert plain(console.replay(text, demo)) == plain(text), "run python tools/console.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if not target.startswith(("http:", "https:", "mailto:")):
            assert (page.parent / target).exists(), target


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "index.md" or f"({page.name})" in index, page.name


def test_a_wrong_page_is_noticed(demo: Path) -> None:
    right = console.replay("```console\n$ dlv list --names\n```\n", demo)
    assert "lenet-wide" in right
    wrong = right.replace("lenet-wide", "lenet-tall")
    assert plain(console.replay(wrong, demo)) != plain(wrong)
    with pytest.raises(console.SessionError, match="no command"):
        console.replay("```console\n$ dlv lst\n```\n", demo)
    with pytest.raises(console.SessionError, match="ZeroDivisionError"):
        console.replay("```python\n1 / 0\n```\n", demo)
