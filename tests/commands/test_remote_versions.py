"""Versions that stay on a remote: read by references, pulled without weights, opened by address."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv as dlv_module
import dlv.versions.card as cards
from dlv.errors import NotFound, RemoteError, UsageError
from dlv.metadata import facts
from dlv.repository.handle import Repository
from dlv.weights.store import MatrixStore
from tests.hub.stores import web_server

Dlv = Callable[..., Any]


@pytest.fixture
def team(tmp_path: Path, dlv: Dlv, bounded_demo: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The models of the demo, with bounds, on a remote of which a new repository knows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for words in (
        ["-C", "made", "remote", "add", "origin", "../team"],
        ["-C", "made", "publish", "lenet", "lenet-wide"],
        ["init", "new"],
        ["-C", "new", "remote", "add", "origin", "../team"],
    ):
        assert dlv(*words).code == 0, words
    monkeypatch.chdir("new")
    return tmp_path / "team"


def test_commands_read_a_remote(dlv: Dlv, team: Path) -> None:
    """What they say is what they say where the versions are."""
    for words in (
        ["list"],
        ["desc", "{}lenet@2", "--layers"],
        ["desc", "{}lenet@2", "--stats"],
        ["show", "{}lenet@1:train.py"],
        ["metrics", "{}lenet@1", "{}lenet-wide"],
        ["diff", "{}lenet@1", "{}lenet@3", "--network", "--tensors", "--params", "--metrics"],
    ):
        here = dlv("-C", "../made", *[word.format("") for word in words])
        there = dlv(*[word.format("origin:") for word in words], *["origin:"] * (words == ["list"]))
        assert (here.code, there.code) == (0, 0), there.stderr
        plain = there.stdout.replace("origin:", "").replace("HEAD,", "")
        assert plain == here.stdout.replace("HEAD,", "").replace(",candidate", "").replace(
            "candidate", ""
        )
    query = 'select m where m["accuracy"] > 0.94'
    assert len(dlv("query", "--remote", "origin", query, json=True).document["rows"]) == 3
    assert dlv("list").stderr == "no versions yet\n"
    derived = 'construct d from m where m.name = "lenet" mutate m["conv1"].out = 16 into "x"'
    found = dlv("query", "--remote", "origin", derived)
    assert (found.code, "cannot be changed from here" in found.stderr) == (2, True)


def test_evaluation_fetches_what_decides(dlv: Dlv, team: Path) -> None:
    made = dlv("-C", "../made", "eval", "lenet@3", "test.npz", "--progressive", json=True).document
    found = dlv("eval", "origin:lenet@3", "../made/test.npz", "--progressive", json=True).document
    for one, other in zip(made["results"], found["results"], strict=True):
        assert one["mode"] == other["mode"] == "progressive"
        assert one["accuracy"] == other["accuracy"]
        # Of what the local schedule reads; chunks with several tensors are divided on a remote.
        assert other["bytes_read"] <= one["bytes_read"] * 1.02 + 100
        assert other["bytes_read"] < other["bytes_whole"]
    packs = sum(p.stat().st_blocks * 512 for p in Path(".dlv").rglob("packs/*/*.pack"))
    assert packs < sum(p.stat().st_size for p in team.rglob("*.pack"))
    again = dlv("eval", "origin:lenet@3", "../made/test.npz", "--progressive", json=True).document
    assert again["remote"]["bytes_received"] < 1000  # all of it is in the cache
    assert dlv("eval", "origin:lenet@3", "../made/test.npz").stderr == ""
    mixed = dlv("eval", "origin:lenet@3", "lenet@1", "../made/test.npz")
    assert (mixed.code, mixed.stderr.splitlines()[0]) == (
        2,
        "error: versions here and on a remote cannot be evaluated together",
    )


def test_differences_between_here_and_there(dlv: Dlv, team: Path) -> None:
    dlv("pull", "lenet@1")
    found = dlv("diff", "lenet@1", "origin:lenet@3", json=True).document
    same = dlv("-C", "../made", "diff", "lenet@1", "lenet@3", json=True).document
    assert json.dumps(found).replace("origin:", "") == json.dumps(same)
    equal = dlv("diff", "lenet@1", "origin:lenet@1", "--exit-code")
    assert equal.code == 0, equal.stdout


@pytest.mark.parametrize(
    ("reference", "error"),
    [
        ("origin:lent", "error: origin has no model `lent`"),
        ("origin:lenet@9", "error: no version matches `lenet@9`"),
        ("origin:feed1234", "error: no version matches `feed1234`"),
    ],
)
def test_references_to_nothing(dlv: Dlv, team: Path, reference: str, error: str) -> None:
    found = dlv("desc", reference)
    assert (found.code, found.stderr.splitlines()[0]) == (4, error)


def test_checkout_pulls(dlv: Dlv, team: Path) -> None:
    assert dlv("checkout", "origin:lenet@2").code == 0
    assert Path("config.json").read_bytes() != Path("../made/config.json").read_bytes()
    assert dlv("status", "--exit-code").code == 0
    assert dlv("fsck").code == 0


def test_weights_that_stay(dlv: Dlv, team: Path) -> None:
    """Metadata first, weights when they are used, all of them at last; never without the remote."""
    assert dlv("pull", "lenet", "--metadata-only").code == 0
    assert dlv("fsck", json=True).document["checked"]["promised"] == 32
    assert dlv("list", "lenet").stdout == dlv("list", "origin:lenet").stdout
    with Repository.find(Path()) as repository:
        assert len(facts.promises(repository.database)) == 3
        ids = list(facts.promises(repository.database))
    away = team.rename(team.with_name("away"))
    found = dlv("desc", "lenet@2", "--stats")
    assert (found.code, "no remote found" in found.stderr) == (7, True)
    assert dlv("desc", "lenet@2").code == 0
    away.rename(team)
    stats = dlv("desc", "lenet@2", "--stats").stdout
    assert stats == dlv("-C", "../made", "desc", "lenet@2", "--stats").stdout
    shutil.rmtree(".dlv/cache")
    assert dlv("checkout", "lenet@2", "--to", "out").code == 0
    assert dlv("-C", "../made", "checkout", "lenet@2", "--to", "../out").code == 0
    for path in Path("out").iterdir():
        assert path.read_bytes() == (Path("../out") / path.name).read_bytes()
    assert dlv("gc", "--grace", "0", "-y").code in (0, 2)
    assert dlv("archive").code == 0
    assert dlv("fsck", "--rebuild").code == 0
    assert dlv("fsck", json=True).document["checked"]["promised"] == 32
    message = dlv("pull", "lenet").stderr
    assert message == "fetched the missing weights of lenet@1, lenet@2, lenet@3\n"
    checked = dlv("fsck", json=True).document["checked"]
    assert (checked["tensors"], "promised" in checked) == (32, False)
    team.rename(team.with_name("away"))
    with Repository.find(Path()) as repository:
        assert not facts.promises(repository.database)
        store = MatrixStore.of(repository)
        for version in ids:
            for snapshot in repository.manifest(version).snapshots:
                for digest in snapshot.hashes:
                    assert digest is None or store.matrix(digest)


def test_a_commit_on_promised_weights(dlv: Dlv, team: Path) -> None:
    """New weights are stored here even where the remote has the same; old ones stay promised."""
    dlv("pull", "lenet@3", "--metadata-only")
    dlv("checkout", "lenet@1")
    np.savez("w.npz", **_weights("lenet@1"))
    assert dlv("add", "w.npz").code == 0
    assert dlv("commit", "-m", "the same numbers in another file").code == 0
    team.rename(team.with_name("away"))
    shutil.rmtree(".dlv/cache")
    assert dlv("checkout", "lenet@2", "--to", "out").code == 0
    assert dlv("fsck").code == 0


def _weights(reference: str) -> dict[str, Any]:
    with dlv_module.open(".") as repo:
        return dict(repo[reference].state_dict())


@pytest.mark.parametrize(
    ("options", "local"), [(["--tensors", "conv1.*"], 10), (["--planes", "1"], 0)]
)
def test_some_weights(dlv: Dlv, team: Path, options: list[str], local: int) -> None:
    assert dlv("pull", "lenet", *options).code == 0
    checked = dlv("fsck", json=True).document["checked"]
    assert (checked.get("tensors", 0), checked["promised"]) == (local, 32 - local)
    team.rename(team.with_name("away"))
    words = ["--tensor", "conv1.weight"] + (["--planes", "1"] if "--planes" in options else [])
    assert dlv("desc", "lenet@1", *words).code == 0
    if "--planes" in options:
        assert dlv("desc", "lenet@1", "--tensor", "fc1.weight").code == 7


@pytest.mark.parametrize("served", [False, True])
def test_a_remote_from_python(team: Path, served: bool) -> None:
    with web_server(team.parent) as address:
        url = f"{address}/team" if served else f"file://{team}"
        with dlv_module.open(url) as remote, dlv_module.open("../made") as made:
            assert remote.names == ["lenet", "lenet-wide"]
            version = remote["lenet@3"]
            before = remote.remote.store.traffic.received  # type: ignore[attr-defined]
            for name, array in made["lenet@3"].state_dict().items():
                assert np.array_equal(version.tensor(name), array)
            fetched = remote.remote.store.traffic.received - before  # type: ignore[attr-defined]
            assert 0 < fetched <= 20_048
            assert len(remote) == 4
            assert "lenet@7" not in remote
            with pytest.raises(NotFound):
                remote["nothing"]
            with pytest.raises(UsageError):
                remote.commit("no")
        with dlv_module.open(url) as remote:
            assert remote["lenet@3"].tensor("conv1.weight").shape == (8, 1, 3, 3)
            assert remote.remote.store.traffic.received < 10_000  # type: ignore[attr-defined]


def test_a_remote_that_grows_while_it_is_open(dlv: Dlv, team: Path) -> None:
    """New versions are seen by a process that is running, and by a later one with its cache."""
    url = f"file://{team}"
    with dlv_module.open(url) as remote:
        assert remote["lenet@3"].tensor("conv1.weight").shape == (8, 1, 3, 3)
        assert remote["lenet-wide@1"].tensor("conv1.weight").shape == (16, 1, 3, 3)
        dlv("-C", "../made", "commit", "--allow-empty", "-m", "more")
        assert dlv("-C", "../made", "publish").code == 0
        assert remote["lenet"].label == "lenet@4"
    dlv("-C", "../made", "commit", "--allow-empty", "-m", "yet more")
    assert dlv("-C", "../made", "publish").code == 0
    with dlv_module.open(url) as remote:
        assert remote["lenet"].label == "lenet@5"


def test_a_version_that_is_published_again(dlv: Dlv, team: Path) -> None:
    """Retired, and published once more under another number."""
    assert dlv("desc", "origin:lenet@3").code == 0
    dlv("remote", "retire", "origin:lenet@3")
    assert dlv("desc", "origin:lenet@3").code == 4
    assert dlv("-C", "../made", "publish", "lenet@3").code == 0
    assert dlv("desc", "origin:lenet@4", "--stats").code == 0
    assert "lenet@4" in dlv("list", "origin:").stdout


def test_a_damaged_mirror_is_made_again(dlv: Dlv, team: Path) -> None:
    assert dlv("list", "origin:").code == 0
    (mirror,) = Path(".dlv/cache/remotes").glob("*/mirror")
    for path in (mirror / ".dlv").glob("dlv.db*"):
        path.write_bytes(b"not a database" * 100)
    assert dlv("list", "origin:").code == 0
    assert dlv("desc", "origin:lenet", "--stats").code == 0


def test_no_remote_there(tmp_path: Path) -> None:
    with pytest.raises(RemoteError, match="no remote found"):
        dlv_module.open(f"file://{tmp_path}/nothing")


def test_search_and_cards(dlv: Dlv, team: Path) -> None:
    front = "---\nlicense: mit\npipeline_tag: image-classification\ntags: [bars]\n---\n"
    Path("../made/CARD.md").write_text(front + "# Bars\n\nTells *bars* apart.\n")
    dlv("-C", "../made", "add", "../made/CARD.md")
    assert dlv("-C", "../made", "commit", "-m", "A card").code == 0
    assert dlv("search", "network").stderr == "nothing matches\n"
    assert dlv("-C", "../made", "publish").code == 0
    found = dlv("search", "bars", "task:image*", "accuracy>0.9", "net:conv", json=True).document
    (hit,) = found["results"]
    assert (hit["version"], hit["license"], hit["tags"]) == ("lenet@4", "mit", ["bars"])
    assert dlv("search", "--sort", "accuracy").stdout.startswith("origin:lenet@4\t")
    where = dlv("search", "--where", 'm["conv*"].next has RELU', "--where", "m.name = 'lenet'")
    assert len(where.stdout.splitlines()) == 4
    for condition, lines in (
        ("m.lr <", ["condition:1:7: unexpected end of condition", "    m.lr <", " " * 10 + "^"]),
        (
            "m.number = 1\n and m.nam = 1",
            ["condition:2:8: `nam`", "     and m.nam = 1", " " * 11 + "^^^"],
        ),
    ):
        wrong = dlv("search", "--where", condition)
        told = wrong.stderr.splitlines()[:3]
        assert wrong.code == 2
        assert [line[: len(known)] for line, known in zip(told, lines, strict=True)] == lines
    assert dlv("search", "zebra", "--exit-code").code == 1
    assert dlv("search", "tsak:x").code == 2
    assert dlv("search", "acc>1").code == 4
    dlv("remote", "retire", "origin:lenet@4")
    assert dlv("search", "bars", "license:mit", "--offline").stdout != ""
    assert dlv("search", "bars", "license:mit").stdout == ""
    team.rename(team.with_name("away"))
    assert dlv("search", "lenet").code == 7
    described = dlv("-C", "../made", "desc", "lenet@4")
    assert "task\timage-classification\nlicense\tmit\ntags\tbars\n" in described.stdout
    assert "\ncard\n# Bars\n\nTells *bars* apart.\n" in described.stdout
    card = dlv("-C", "../made", "desc", "lenet@4", "--card").stdout
    assert card.startswith("---\nlicense: mit\npipeline_tag: image-classification\ntags:\n- bars\n")
    again = cards.split(card, "README.md")
    assert again.front["model-index"][0]["results"][0]["metrics"][0]["type"] == "accuracy"
    assert again.text.startswith("# Bars\n\nTells *bars* apart.\n\n## Version\n")


def test_a_publish_that_died_before_the_index(
    dlv: Dlv, team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("dlv.hub.index.Index.append", _refuse)
        dlv("-C", "../made", "copy", "lenet", "other")
        dlv("-C", "../made", "commit", "--allow-empty", "-m", "zebra", "--name", "zebra")
        assert dlv("-C", "../made", "publish").code == 0
    assert dlv("search", "zebra").stdout == ""
    assert dlv("-C", "../made", "publish").code == 0
    assert dlv("search", "zebra").stdout.startswith("origin:zebra@1\t")


def _refuse(*_: object) -> None:
    raise RemoteError("cut")
