"""`-o FILE`: reports in one file that loads nothing, and pictures."""

from __future__ import annotations

import re
import webbrowser
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from dlv.report.page import script, style

Dlv = Callable[..., Any]
MOST = 300_000  # bytes, without data

REPORTS: dict[str, list[str]] = {
    "desc": ["desc", "lenet@2"],
    "desc-network": ["desc", "lenet@2", "--network"],
    "desc-stats": ["desc", "lenet@2", "--stats"],
    "desc-tensors": ["desc", "lenet@2", "--tensors"],
    "diff": ["diff", "lenet@1", "lenet@2"],
    "diff-all": ["diff", "lenet@1", "lenet@2", "lenet@1", "--all"],
    "query": ["query", 'select m, m["loss"].min'],
    "explain": ["query", "select m", "--explain"],
    "plots": ["plots", "lenet@1", "lenet@2", "--smooth", "0.5"],
    "stats": ["stats"],
    "stats-codec": ["stats", "--by", "codec"],
    "archive": ["archive", "--dry-run"],
}


class Page(HTMLParser):
    """What a browser would load or run, and whether every element is closed."""

    VOID = frozenset({"meta", "link", "input", "br", "img"})
    DRAWN = frozenset({"path", "circle", "rect"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.handlers: list[str] = []
        self.scripts = 0
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._look(tag, attrs)
        if tag not in self.VOID and tag not in self.DRAWN:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._look(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.DRAWN:
            assert self.open.pop() == tag

    def _look(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.loads += [str(value) for name, value in attrs if name in ("src", "srcset", "data")]
        self.loads += [str(value) for name, value in attrs if name == "href" and tag == "link"]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


@pytest.mark.parametrize("name", list(REPORTS))
def test_a_report_is_one_file(dlv: Dlv, filled: Path, name: str) -> None:
    result = dlv(*REPORTS[name], "-o", "report.html")
    assert (result.code, result.stdout) == (0, "report.html\n")
    text = (filled / "report.html").read_text()
    assert len(text.encode()) < MOST
    page = Page(text)
    assert page.loads == []
    assert page.handlers == []
    assert page.scripts == 1
    body = text.replace(style(), "").replace(script(), "")
    assert not re.search(r"https?://(?!www\.w3\.org)", body)
    assert f"dlv {REPORTS[name][0]}" in text  # what made it


@pytest.mark.parametrize("name", list(REPORTS))
def test_json_says_where_it_is(dlv: Dlv, filled: Path, name: str) -> None:
    plain = dlv(*REPORTS[name], json=True).document
    told = dlv(*REPORTS[name], "-o", "report.html", json=True).document
    assert Path(told["output"]).name == "report.html"
    same = set(plain) - {"output", "seconds", "checkpoints"}
    assert {key: plain[key] for key in same} == {key: told[key] for key in same}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["desc", "-o", "x.pdf"], "must end in .html\n"),
        (["diff", "lenet@1", "lenet@2", "-o", "x"], "must end in .html"),
        (["stats", "--open"], "--open requires --output"),
        (["stats", "-o", "none/x.html"], "no such directory"),
        (["archive", "-o", "x.html"], "--output requires --dry-run"),
        (["trials", "-o", "x.html"], "--output requires a SWEEP"),
        (["query", "--list", "-o", "x.html"], "--output requires a query"),
        (["desc", "lenet@2", "-o", "x.svg"], "must end in .html"),
    ],
)
def test_what_cannot_be_written_is_refused_first(
    dlv: Dlv, filled: Path, words: list[str], message: str
) -> None:
    before = sorted(path.name for path in filled.iterdir())
    result = dlv(*words)
    assert result.code == 2
    assert message in result.stderr
    assert sorted(path.name for path in filled.iterdir()) == before


def test_a_network_is_a_picture(dlv: Dlv, filled: Path) -> None:
    assert dlv("desc", "lenet@2", "--network", "-o", "net.svg").code == 0
    root = ElementTree.fromstring((filled / "net.svg").read_text())
    assert root.tag.endswith("svg")
    pytest.importorskip("matplotlib")
    assert dlv("desc", "lenet@2", "--network", "-o", "net.png").code == 0
    assert (filled / "net.png").read_bytes().startswith(b"\x89PNG")


def test_lineage_is_a_picture(dlv: Dlv, filled: Path) -> None:
    assert dlv("log", "--all", "-o", "log.svg").code == 0
    text = (filled / "log.svg").read_text()
    assert "lenet@2" in text
    ElementTree.fromstring(text)
    assert dlv("log", "-o", "log.html").code == 0
    pytest.importorskip("matplotlib")
    assert dlv("log", "--all", "-o", "log.png").code == 0
    assert (filled / "log.png").read_bytes().startswith(b"\x89PNG")


def test_a_report_is_opened(dlv: Dlv, filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    assert dlv("diff", "lenet@1", "lenet@2", "-o", "d.html", "--open").code == 0
    assert opened == [(filled / "d.html").resolve().as_uri()]


def test_an_old_report_stays_if_the_new_one_cannot_be_made(dlv: Dlv, filled: Path) -> None:
    (filled / "r.html").write_text("old")
    assert dlv("desc", "nothing@1", "-o", "r.html").code == 4
    assert (filled / "r.html").read_text() == "old"
