"""A hub with public, private and hostile repositories, and its users."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import dlv
from tests.ui.conftest import HOSTILE
from tests.ui.hub.hubs import Keeper, RunningHub, publish


@dataclass
class Team:
    """A running hub: ada administers acme, bob reads acme/secret, eve only what is public."""

    running: RunningHub
    keeper: Keeper
    token: str
    ada: str
    bob: str
    eve: str


@pytest.fixture(scope="session")
def hostile_names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names that attack a page, as far as a hub accepts them."""
    folder = tmp_path_factory.mktemp("hostile-hub") / "repo"
    folder.mkdir()
    (folder / "notes.py").write_text(f"# {HOSTILE}\nprint('<b>')\n")
    (folder / "<b>x.txt").write_text(HOSTILE)
    (folder / "CARD.md").write_text(
        f"---\ntags: ['<script>alert(1)</script>', x]\ntask: '<img src=x onerror=alert(1)>'\n"
        f"license: '</li><b>'\n---\n{HOSTILE}\n"
    )
    before = os.getcwd()
    os.chdir(folder)
    try:
        with dlv.open(folder, create=True) as repo:
            for number in range(3):
                repo.add("notes.py", "<b>x.txt", "CARD.md")
                repo.commit(
                    f"{HOSTILE}\nsecond line",
                    name="evil",
                    weights={HOSTILE: np.full((3, 4), number, np.float32)},
                    parameters={HOSTILE: HOSTILE, "lr": 0.1 / (number + 1)},
                    metrics={HOSTILE: [(i, i * number) for i in range(5)]},
                )
    finally:
        os.chdir(before)
    return folder


@pytest.fixture(scope="session")
def team(
    demo_once: Path, hostile_names: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Team]:
    data = tmp_path_factory.mktemp("hub")
    keeper = Keeper(data)
    for name in ("ada", "bob", "eve"):
        keeper.user(name)
    keeper.member("acme", "ada", "admin")
    keeper.repository("acme/vision", "ada", description="Digits <b>and</b> more.")
    keeper.repository("acme/secret", "ada", "private", "Nothing to see.")
    keeper.repository("acme/evil", "ada", description=HOSTILE)
    keeper.repository("acme/empty", "ada")
    keeper.member("acme/secret", "bob", "reader")
    token = keeper.token("ada")
    running = RunningHub(data)
    try:
        publish(running, "acme/vision", demo_once, token)
        publish(running, "acme/secret", demo_once, token)
        publish(running, "acme/evil", hostile_names, token)
        keeper.alias("acme/vision", "ada", "lenet", "production", 2)
        keeper.make_cards()
        sessions = [keeper.session(name) for name in ("ada", "bob", "eve")]
        yield Team(running, keeper, token, *sessions)
    finally:
        running.stop()
        keeper.close()


def repository_pages(base: str, model: str, file: str = "train.py") -> list[str]:
    """An address of every kind of page of a repository."""
    a, b = f"{model}@1", f"{model}@3"
    both = f"{base}/compare?v={a}&v={b}"
    return [
        base, f"{base}/versions", f"{base}/versions?sort=version",
        f"{base}/versions?where=lr+%3E+0", f"{base}/versions?where=nonsense",
        f"{base}/rows?from=0", f"{base}/v/{a}",
        f"{base}/statistics/{a}", both, f"{both}&all=1",
        f"{base}/compare", f"{base}/query", f"{base}/query?q=select+m",
        f"{base}/query?q=select+m+where", f"{base}/query?q=select+m&explain=1",
        f"{base}/data/curves?v={a}", f"{base}/complete?text=sel",
        f"{base}/file/{a}?path={file}", f"{base}/v/nothing",
    ]  # fmt: skip


HUB_PAGES = ["/", "/search?q=lenet", "/search?q=x:y", "/search?where=nonsense", "/login", "/acme"]
