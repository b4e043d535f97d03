"""Every form of a version reference, what it finds, and what is said when it finds nothing."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dlv.metadata.evaluations as evaluations
import dlv.repository.revisions as revisions
from dlv.canonical import hash_bytes
from dlv.errors import DlvError, NotFound, UsageError
from dlv.metadata import facts, versions
from dlv.metadata.database import Database
from dlv.metadata.metrics import summarise
from dlv.objects.fact import Fact
from dlv.objects.manifest import Manifest, Parent, Snapshot, TensorEntry

MINUTES = itertools.count()


class Shelf:
    """A catalogue that is filled in one line per version."""

    def __init__(self, path: Path) -> None:
        self.db = Database(path, wal=False)
        self.db.execute("PRAGMA synchronous = OFF")
        self.db.execute("PRAGMA journal_mode = MEMORY")

    def manifest(self, name: str, message: str = "", **fields: Any) -> Manifest:
        return Manifest(name, message, "me", "2026-01-01T00:00:00.000000Z", **fields)

    def enter(self, manifest: Manifest, metrics: dict[str, Sequence[float]] | None = None) -> str:
        summaries = []
        for key, values in (metrics or {}).items():
            run, _, tag = key.rpartition("/")
            summaries.append(summarise(run, tag, "1" * 64, range(len(values)), values))
        number = versions.next_number(self.db, manifest.name)
        versions.insert(self.db, manifest, number=number, net_id=None, summaries=summaries)
        self.fact("number", manifest.id, name=manifest.name, number=number)
        return manifest.id

    def add(
        self,
        name: str,
        *parents: str,
        steps: Sequence[int | None] = (),
        message: str = "",
        **metrics: Sequence[float],
    ) -> str:
        tensors = (TensorEntry("w", "float32", (1,)),) if steps else ()
        manifest = self.manifest(
            name,
            message or f"{next(MINUTES)}",
            parents=tuple(Parent(parent) for parent in parents),
            tensors=tensors,
            snapshots=tuple(Snapshot(s, (hash_bytes(str(s).encode()),)) for s in steps),
            own=len(steps) - 1 if steps else None,
        )
        return self.enter(manifest, metrics)

    def fact(self, kind: str, subject: str, **data: Any) -> Fact:
        moment = facts.moment_after(self.db, kind, subject)
        fact = Fact(kind, subject, "me", moment, data)
        facts.record(self.db, fact)
        return fact

    def evaluate(self, version: str, step: int | None = None, **metrics: Any) -> Fact:
        data = {"name": "test.npz", "fingerprint": "abc"}
        return self.fact("evaluation", version, step=step, data=data, metrics=metrics)

    def __getitem__(self, text: str) -> str:
        return revisions.resolve(self.db, text).version.id

    def error(self, text: str) -> DlvError:
        with pytest.raises(DlvError) as found:
            revisions.resolve(self.db, text)
        return found.value


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    shelf = Shelf(tmp_path / "dlv.db")
    yield shelf
    shelf.db.close()


def test_names_and_numbers(shelf: Shelf) -> None:
    one, two = shelf.add("lenet"), shelf.add("lenet")
    other = shelf.add("le-net_5.b+x")
    assert shelf["lenet@1"] == one
    assert shelf["lenet"] == shelf["lenet@latest"] == shelf["lenet@2"] == two
    assert shelf["lenet@02"] == two
    assert shelf["le-net_5.b+x"] == other


def test_ids(shelf: Shelf) -> None:
    one = shelf.add("lenet")
    assert shelf[one] == shelf[one[:4]] == shelf[one[:12]] == one
    assert shelf.error(one[:3]).exit_code == 4
    assert shelf.error("0" * 64).exit_code == 4
    assert shelf.error(one.upper()).exit_code == 4


def test_ambiguous_prefixes(shelf: Shelf) -> None:
    seen: dict[str, Manifest] = {}
    for count in range(5000):
        made = shelf.manifest("lenet", str(count))
        twin = seen.setdefault(made.id[:4], made)
        if twin is not made:
            break
    ids = sorted([shelf.enter(twin), shelf.enter(made)])
    error = shelf.error(made.id[:4])
    assert isinstance(error, NotFound)
    assert error.message == f"the id prefix `{made.id[:4]}` is ambiguous"
    assert all(one[:12] in (error.why or "") for one in ids)
    assert "lenet@1" in (error.why or "")
    longer = next(n for n in range(5, 64) if ids[0][:n] != ids[1][:n])
    assert shelf[made.id[:longer]] == made.id
    # A commit that was undone is no rival any more.
    found = facts.newest(shelf.db, "number", twin.id)
    assert found is not None
    shelf.fact("undo", found[0])
    assert shelf[made.id[:4]] == made.id
    assert shelf[twin.id[:longer]] == twin.id


def test_what_looks_like_an_id_may_be_a_name_or_tag(shelf: Shelf) -> None:
    one = shelf.add("lenet")
    named = shelf.add(one[:6])
    assert shelf[one[:6]] == named
    assert shelf[one[:7]] == one
    shelf.fact("tag", one[:8], version=named)
    assert shelf[one[:8]] == named
    # 64 digits are always an id.
    shelf.fact("tag", one, version=named)
    assert shelf[one] == one
    shelf.fact("tag", "f" * 64, version=named)
    assert shelf.error("f" * 64).exit_code == 4


def test_tags_and_head(shelf: Shelf) -> None:
    assert "no commits yet" in shelf.error("HEAD").message
    one, two = shelf.add("lenet"), shelf.add("lenet")
    facts.set_state(shelf.db, "HEAD", one)
    shelf.fact("tag", "paper-final", version=two)
    assert shelf["HEAD"] == one
    assert shelf["paper-final"] == two
    shelf.fact("tag", "paper-final", version=None)
    assert shelf.error("paper-final").exit_code == 4
    facts.set_state(shelf.db, "HEAD", "0" * 64)
    assert "no commits yet" in shelf.error("HEAD").message


def test_ancestors(shelf: Shelf) -> None:
    one = shelf.add("a")
    two = shelf.add("a", one)
    side = shelf.add("b", one)
    both = shelf.add("a", two, side)
    top = shelf.add("a", both)
    facts.set_state(shelf.db, "HEAD", top)
    for text, wanted in {
        "a~": both,
        "a~1": both,
        "a~2": two,
        "a~3": one,
        "a~~": two,
        "a~0": top,
        "a^": both,
        "a^1": both,
        "a^0": top,
        "a^^2": side,
        "a~1^2": side,
        "a~1^2~1": one,
        "HEAD~1": both,
        "a@3~1": two,
        f"{both[:10]}^2": side,
    }.items():
        assert shelf[text] == wanted, text
    error = shelf.error("a~4")
    assert (error.exit_code, error.why) == (4, "a@1 has 0 parents")
    assert error.hint == "dlv log a@4"
    assert shelf.error("a^2").why == "a@4 has 1 parent"
    assert shelf.error("a^^3").why == "a@3 has 2 parents"


def test_a_parent_that_is_not_here(shelf: Shelf) -> None:
    shelf.add("a", "9" * 64)
    assert "is not in this repository" in shelf.error("a~1").message


def test_steps_and_files(shelf: Shelf) -> None:
    one = shelf.add("a", steps=(-5, 100, 200, 1000, None))
    found = revisions.resolve(shelf.db, "a/200")
    assert found.version.id == one
    assert found.snapshot is not None
    assert (found.snapshot.step, found.snapshot.index) == (200, 2)
    assert revisions.resolve(shelf.db, "a@1/-5:train.py").file == "train.py"
    assert revisions.resolve(shelf.db, "a:b/c:d/100").file == "b/c:d/100"
    assert revisions.resolve(shelf.db, "a").snapshot is None
    error = shelf.error("a/150")
    assert (error.exit_code, error.did_you_mean) == (4, ["a@1/100", "a@1/200"])
    assert error.why == "the nearest are 100 and 200"
    assert shelf.error("a/5000").why == "the nearest are 200 and 1000"
    assert shelf.error("a/160").did_you_mean == ["a@1/200", "a@1/100"]
    shelf.fact("removal", one, steps=[100, 200])
    assert shelf.error("a/200").why == "the nearest are -5 and 1000"
    shelf.add("b", steps=(None,))
    assert shelf.error("b/1").why == "its checkpoints have no steps"
    shelf.add("c")
    assert shelf.error("c/1").why == "it has no checkpoints"


def test_version_wants_a_whole_version(shelf: Shelf) -> None:
    one = shelf.add("a", steps=(100,))
    assert revisions.version(shelf.db, "a~0").id == one
    for text in ("a/100", "a:train.py"):
        with pytest.raises(UsageError, match="a part of a version"):
            revisions.version(shelf.db, text)


NO_FORM = """a@ a@x a@1@2 a@best a@best: @1 ~1 /5 a/ a/x a/5/6 a~x a: a^x a@-1 a@1.5 a/1.5 a@latest2
a~1/ a@1: a/--1 a@best:loss~x"""


@pytest.mark.parametrize("text", ["", *NO_FORM.split()])
def test_no_references(shelf: Shelf, text: str) -> None:
    shelf.add("a")
    error = shelf.error(text)
    assert isinstance(error, UsageError)
    assert "forms: lenet" in (error.why or "")


@pytest.mark.parametrize("number", ["0", "3", "9" * 18, "9" * 19, str(2**63), "9" * 5000])
def test_numbers_that_are_not_there(shelf: Shelf, number: str) -> None:
    shelf.add("a", steps=(1,))
    shelf.add("a", steps=(1,))
    error = shelf.error(f"a@{number}")
    assert isinstance(error, NotFound)
    assert error.why == "`a` has the versions a@1, a@2"
    assert error.did_you_mean == ["a@2"]
    assert shelf.error(f"a/-{number}").exit_code == 4
    if number != "0":
        assert shelf.error(f"a~{number}").exit_code == 4
        assert shelf.error(f"a^{number}").exit_code == 4


def test_suggestions(shelf: Shelf) -> None:
    one = shelf.add("lenet")
    shelf.add("resnet")
    shelf.fact("tag", "paper-final", version=one)
    error = shelf.error("lnet@3")
    assert error.message == "no version matches `lnet@3`"
    assert error.why == "no model `lnet` here (2 names)"
    assert error.did_you_mean[0] == "lenet@3"
    assert error.hint == "dlv list --names"
    assert shelf.error("paper-finel~1").did_you_mean == ["paper-final~1"]
    assert shelf.error("Lenet/5").did_you_mean[0] == "lenet/5"
    error = shelf.error("zzz")
    assert error.did_you_mean == []
    assert error.why == "not a model, tag or id in this repository"


def test_removed_versions(shelf: Shelf) -> None:
    one, two = shelf.add("a"), shelf.add("a")
    shelf.fact("removal", two, steps=None)
    assert shelf["a"] == shelf["a@latest"] == one
    for text in ("a@2", two, two[:8]):
        found = revisions.resolve(shelf.db, text)
        assert found.version.id == two
        assert found.notes == ("a@2 is removed; to restore it: dlv undo --list",)
    assert revisions.resolve(shelf.db, "a@1").notes == ()
    shelf.fact("removal", one, steps=None)
    for text in ("a", "a@latest"):
        error = shelf.error(text)
        assert error.exit_code == 4
        assert error.why == "all versions of `a` were removed or undone"
        assert error.hint == "dlv list --removed"


def test_undone_commits(shelf: Shelf) -> None:
    one, two = shelf.add("a"), shelf.add("a")
    found = facts.newest(shelf.db, "number", two)
    assert found is not None
    undo = shelf.fact("undo", found[0])
    assert shelf["a"] == one
    assert revisions.resolve(shelf.db, "a@2").notes == ("the commit of a@2 was undone",)
    shelf.fact("undo", undo.hash)
    assert shelf["a"] == two


# best


@pytest.mark.parametrize(
    ("metric", "direction"),
    [
        ("loss", "min"),
        ("val/loss", "min"),
        ("val_loss", "min"),
        ("valloss", "min"),
        ("error_rate", "min"),
        ("Perplexity", "min"),
        ("rmse", "min"),
        ("accuracy", "max"),
        ("top1 acc", "max"),
        ("eval/f1", "max"),
        ("BLEU-4", "max"),
        ("lr", None),
        ("glossary", None),
        ("epoch", None),
    ],
)
def test_directions(metric: str, direction: str | None) -> None:
    assert revisions.direction_of(metric) == direction


def test_best(shelf: Shelf) -> None:
    ids = [
        shelf.add("a", loss=[0.1, 0.5], accuracy=[0.2], lr=[1.0]),
        shelf.add("a", loss=[0.9, 0.3], accuracy=[0.8], lr=[2.0]),
        shelf.add("a", loss=[0.4], accuracy=[0.8], lr=[0.5]),
        shelf.add("a", loss=[0.0, math.nan], accuracy=[math.nan]),
        shelf.add("a", loss=[math.inf], accuracy=[-math.inf]),
        shelf.add("a"),
    ]
    shelf.add("b", loss=[0.0], accuracy=[1.0])
    assert shelf["a@best:loss"] == ids[1]  # the last value, not the least
    assert shelf["a@best:loss:max"] == ids[4]  # infinity is a number, NaN is none
    assert shelf["a@best:accuracy"] == ids[1]  # of equal ones the older
    assert shelf["a@best:accuracy:min"] == ids[4]
    assert shelf["a@best:lr:min"] == ids[2]
    error = shelf.error("a@best:lr")
    assert (error.exit_code, error.hint) == (2, "use a@best:lr:max or a@best:lr:min")
    assert shelf.error("c@best:loss").exit_code == 4
    error = shelf.error("a@best:l")  # before anybody is asked what is better, it has to be there
    assert (error.exit_code, error.did_you_mean) == (4, ["a@best:lr"])
    error = shelf.error("a@best:acuracy:max")
    assert (error.exit_code, error.did_you_mean) == (4, ["a@best:accuracy"])
    shelf.fact("removal", ids[1], steps=None)
    assert shelf["a@best:loss"] == ids[2]


def test_best_of_runs_and_with_more_behind(shelf: Shelf) -> None:
    first: dict[str, Any] = {"val/acc": [0.5], "train/acc": [0.9]}
    second: dict[str, Any] = {"val/acc": [0.6], "train/acc": [0.7]}
    one = shelf.add("a", steps=(5,), **first)
    two = shelf.add("a", one, steps=(5,), **second)
    error = shelf.error("a@best:acc")  # two metrics are not compared with each other
    assert (error.exit_code, error.message) == (2, "`acc` is ambiguous: train/acc, val/acc")
    assert shelf["a@best:val/acc"] == two
    assert shelf["a@best:val/acc~1"] == one
    found = revisions.resolve(shelf.db, "a@best:val/acc/5:train.py")
    assert (found.version.id, found.file) == (two, "train.py")
    assert found.snapshot is not None
    assert revisions.resolve(shelf.db, "a@best:val/acc:max/5").snapshot is not None
    assert revisions.resolve(shelf.db, "a@best:val/acc:max:f.py").file == "f.py"


def test_evaluations_have_metrics_of_their_own(shelf: Shelf) -> None:
    one = shelf.add("a", accuracy=[0.9], steps=(1, 2))
    two = shelf.add("a", accuracy=[0.5])
    three = shelf.add("a")
    shelf.evaluate(two, accuracy=0.95)
    assert shelf["a@best:accuracy"] == one  # the logged one alone
    assert shelf["a@best:test/accuracy"] == two
    shelf.evaluate(one, accuracy=0.7)
    shelf.evaluate(two, accuracy=0.4)  # the newest counts
    assert shelf["a@best:test/accuracy"] == one
    last = shelf.evaluate(three, accuracy=1)
    assert shelf["a@best:test/accuracy"] == three
    shelf.evaluate(three, loss=0.1)  # says nothing about accuracy
    assert shelf["a@best:test/accuracy"] == three
    assert shelf["a@best:loss"] == three  # nothing else has that name
    shelf.fact("undo", last.hash)
    assert shelf["a@best:test/accuracy"] == one
    shelf.evaluate(one, accuracy="NaN")
    assert shelf["a@best:test/accuracy"] == two
    shelf.evaluate(one, step=1, accuracy=0.99)  # not the default checkpoint
    assert shelf["a@best:test/accuracy"] == two
    shelf.evaluate(one, step=2, accuracy=0.99)
    assert shelf["a@best:test/accuracy"] == one


def test_one_data_set_has_one_name(shelf: Shelf) -> None:
    """However it was given; another of that name, or a run in the logs, makes it longer."""
    logged: dict[str, Any] = {"val/acc": [0.5]}
    one = shelf.add("a", **logged)
    for name, fingerprint in [
        ("sets/test.npz", "abcdef"),
        ("a@1:test.npz", "abcdef"),
        ("python:sets:images", "123456"),
        ("/other/test.npz", "fedcba"),
        ("/other/test.csv", "fedc11"),
        ("photos", "777777"),
        ("val.npz", "888888"),
    ]:
        data = {"name": name, "fingerprint": fingerprint}
        shelf.fact("evaluation", one, step=None, data=data, metrics={"acc": 0.5})
    names = [saved.data_set for saved in evaluations.saved_evaluations(shelf.db)]
    assert names == ["test", "test", "images", "test-fedc", "test-fedc11", "photos", "val-8888"]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    shelf = Shelf(tmp_path_factory.mktemp("full") / "dlv.db")
    shelf.add("a", shelf.add("b"), steps=(0, 1, 9), best=[1.0])
    yield shelf
    shelf.db.close()


@given(text=st.text(st.sampled_from("ab1@~^/:-.HEADbestlat09ü\n "), max_size=14))
def test_any_text_gives_a_version_or_a_typed_error(full: Shelf, text: str) -> None:
    with contextlib.suppress(NotFound, UsageError):
        assert full[text]
