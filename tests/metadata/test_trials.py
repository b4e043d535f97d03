"""The store of the ledger of trials: rows in and out of its file, in which order, and how."""

from __future__ import annotations

import json
import math
import re
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlv.disk.locks import Patience
from dlv.errors import Conflict, Damaged, NewerFormat, StorageError
from dlv.metadata.trials import SCHEMA_VERSION, Trials
from dlv.training.ledger.ledger import OVER, Claim, Ledger, NewTrial
from dlv.training.ledger.settling import Budget
from dlv.training.workers.owners import Owner

OWNER = Owner(1, 0.0, "elsewhere", "w0")
TOP = {"rule": "top", "k": 1, "metric": "loss", "direction": "min", "step": 4}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Trials]:
    with Trials(tmp_path / "trials.db") as made:
        yield made


def add_run(store: Trials, name: str, **more: Any) -> None:
    texts = {"text": "q", "parameters": "{}", "rules": "[]", "budget": "{}", "sampler": "null"}
    times = {"steps": 10, "growing": 0, "state": "running", "created": 1.0, "alive": 1.0}
    store.add_run({"id": name, **texts, **times, **more})


def add_trial(store: Trials, name: str, **more: Any) -> None:
    row = {"network": "n", "config": "{}", "seed": 0, "log_every": 2}
    store.add_trial({"id": name, **row})
    store.change_trial(name, {"step": 0, **more})


def add_member(store: Trials, run: str, trial: str, ordinal: int, **more: Any) -> bool:
    row = {"label": "", "varied": "{}", "steps": 10, "target": 10, "stopped": 0}
    return store.add_member({"run_id": run, "trial_id": trial, "ordinal": ordinal, **row, **more})


def planted(store: Trials, run: str = "run", /, **steps: int) -> None:
    """A run whose trials have come so far, in this order."""
    add_run(store, run)
    for ordinal, (name, step) in enumerate(steps.items()):
        add_trial(store, name, step=step)
        add_member(store, run, name, ordinal)


def opened(store: Trials, count: int = 2) -> Ledger:
    ledger = Ledger(store, clock=lambda: 1000.0)
    config = json.dumps({"steps": 10, "log_every": 2, "trainer": "torch"})
    made = [NewTrial(f"t{n}", n, "net", config, 0, "", {}) for n in range(count)]
    ledger.open_run("run", "q", {}, [TOP], Budget(), made, steps=10)
    return ledger


def claimed(ledger: Ledger) -> Claim:
    claim = ledger.claim(OWNER)
    assert isinstance(claim, Claim)
    return claim


# The file


def test_the_file_is_made_with_the_first_connection(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    with Trials(path), sqlite3.connect(path) as plain:
        assert plain.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert plain.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        tables = plain.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        assert {name for (name,) in tables} == {
            *("token", "run", "trial", "run_trial", "mark", "log")
        }
    plain.close()


def test_what_was_written_is_there_for_the_next(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    with Trials(path) as store:
        planted(store, a=3)
        store.add_log("a", 2, "loss", math.nan, 0.5)
        token = store.next_token()
    with Trials(path) as store:
        assert [row["id"] for row in store.runs()] == ["run"]
        assert store.members("run")[0]["step"] == 3
        assert math.isnan(store.logs("a")[0][2])
        assert store.next_token() == token + 1


def test_a_ledger_of_a_newer_dlv_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    with Trials(path) as store:
        planted(store, a=3)
        store._do(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before = path.read_bytes()
    with pytest.raises(NewerFormat) as caught:
        Trials(path)
    assert caught.value.why == f"its schema is number {SCHEMA_VERSION + 1}, this dlv knows 1"
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", ["text", "header", "page", "cut"])
def test_a_damaged_file_is_said_to_be(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "trials.db"
    with Trials(path) as store:
        planted(store, **{f"t{n}": n for n in range(200)})
    whole = bytearray(path.read_bytes())
    if damage == "text":
        whole = bytearray(b"these are no rows, but long enough to be taken for some" * 99)
    elif damage == "header":
        whole[:16] = b"SQLite format 9\0"
    elif damage == "page":
        whole[4096:] = b"\xff" * (len(whole) - 4096)
    else:
        whole = whole[: len(whole) // 2]
    path.write_bytes(whole)

    def read() -> None:
        with Trials(path) as store:
            store.members("run")
            store.trials()
            store.runs()

    with pytest.raises(Damaged) as caught:
        read()
    assert "committed versions are not in it" in (caught.value.hint or "")
    assert caught.value.exit_code == 6


def test_a_file_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot use the ledger of trials"):
        Trials(tmp_path / "nowhere" / "trials.db")


def test_who_waits_for_too_long_is_told(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    with Trials(path) as first, Trials(path, patience=Patience(lambda: 0.01)) as second:
        with first.atomic(), pytest.raises(Conflict, match="ledger of trials is busy"):
            second.next_token()
        assert second.next_token() == 1


# Transactions


def test_all_of_a_block_or_nothing(store: Trials) -> None:
    planted(store, a=0)

    def change() -> None:
        with store.atomic():
            store.change_trial("a", {"step": 4})
            store.add_log("a", 4, "loss", 1.0, 0.0)
            store.next_token()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        change()
    assert store.members("run")[0]["step"] == 0
    assert store.logs("a") == []
    assert store.next_token() == 1


def test_a_snapshot_is_of_one_moment(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    with Trials(path) as store, Trials(path) as other:
        planted(store, a=0)
        with store.snapshot():
            assert store.members("run")[0]["step"] == 0
            other.change_trial("a", {"step": 4})
            assert store.members("run")[0]["step"] == 0
        assert store.members("run")[0]["step"] == 4


def test_two_threads_get_different_tokens(tmp_path: Path) -> None:
    path, found = tmp_path / "trials.db", list[int]()
    Trials(path).close()

    def draw() -> None:
        with Trials(path) as mine:
            for _ in range(50):
                with mine.atomic():
                    found.append(mine.next_token())

    threads = [threading.Thread(target=draw) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(1, 101))


# Claims


@pytest.mark.parametrize(("broad", "order"), [(False, "cdab"), (True, "bcda")])
def test_who_is_farther_comes_first_then_who_was_earlier(
    store: Trials, *, broad: bool, order: str
) -> None:
    """`broad`: first all as far as the lower of the rungs."""
    planted(store, a=0, b=0, c=4, d=4)
    for name, target in zip("abcd", (10, 4, 6, 6), strict=True):
        store.change_member("run", name, {"target": target})
    taken = ""
    while found := store.candidates("run", broad=broad):
        (row,) = found
        taken += row["trial"]
        store.change_trial(row["trial"], {"state": "running"})
    assert taken == order


@pytest.mark.parametrize(
    ("trial", "member"),
    [
        ({"state": "running"}, {}),
        ({"state": "done"}, {}),
        ({"state": "failed"}, {}),
        ({"state": "diverged"}, {}),
        ({"step": 6}, {"target": 6}),
        ({}, {"stopped": 1}),
    ],
)
def test_who_is_not_to_be_trained(
    store: Trials, trial: dict[str, Any], member: dict[str, Any]
) -> None:
    planted(store, a=2)
    planted(store, "other", b=0)
    assert [row["trial"] for row in store.candidates("run", broad=False)] == ["a"]
    store.change_trial("a", {"seed": 0, **trial})
    store.change_member("run", "a", {"ordinal": 0, **member})
    assert store.candidates("run", broad=False) == []
    assert [row["trial"] for row in store.candidates("other", broad=False)] == ["b"]


def test_an_old_token_writes_nothing(store: Trials) -> None:
    planted(store, a=0)
    old, new = store.next_token(), store.next_token()
    store.change_trial("a", {"state": "running", "token": new, "lease": 60.0})
    assert store.held("a", old) is None
    assert not store.change_trial("a", {"step": 8}, old)
    assert store.held("a", new) is not None
    assert store.change_trial("a", {"step": 2}, new)
    store.change_trial("a", {"state": "ready"})
    assert store.held("a", new) is None  # it was given back
    assert not store.change_trial("a", {"step": 8}, new)
    row = store.trial("a")
    assert row is not None
    assert (row["step"], row["lease"]) == (2, 60.0)


def test_who_is_at_work(store: Trials) -> None:
    planted(store, a=0, b=0, c=0)
    for name in "ca":
        store.change_trial(name, {"state": "running", "owner": OWNER.worker, "lease": 5.0})
    assert [(row["id"], row["owner"], row["lease"]) for row in store.running()] == [
        *(("a", "w0", 5.0), ("c", "w0", 5.0))
    ]


def test_a_verdict_and_the_claim_behind_it_are_one_transaction(store: Trials) -> None:
    """Whoever is killed in between leaves neither."""
    ledger = opened(store)
    for loss in (2.0, 1.0):
        claim = claimed(ledger)
        for step in (2, 4):
            ledger.log(claim, step, {"loss": loss}, 0.1)
        ledger.finish(claim, "ready")
    said: list[str] = []
    store._connection.set_trace_callback(said.append)
    claim = claimed(ledger)
    store._connection.set_trace_callback(None)
    assert claim.trial == "t1"
    kinds = [re.split(r"[ (]", text)[0:3] for text in said]
    assert kinds[0] == ["BEGIN", "IMMEDIATE"]
    assert kinds[-1] == ["COMMIT"]
    assert sum(words[0] in ("BEGIN", "COMMIT") for words in kinds) == 2
    assert any(text.startswith("INSERT OR IGNORE INTO mark") for text in said)
    assert any(text.startswith("UPDATE trial SET state = 'running'") for text in said)


def test_a_claim_that_dies_leaves_no_verdict(
    store: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = opened(store)
    for loss in (2.0, 1.0):
        claim = claimed(ledger)
        ledger.log(claim, 4, {"loss": loss}, 0.1)
        ledger.finish(claim, "ready")

    def die() -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as moment:
        moment.setattr(store, "next_token", die)
        with pytest.raises(KeyboardInterrupt):
            ledger.claim(OWNER)
    assert store.marks("run") == []
    assert [row["stopped"] for row in store.members("run")] == [0, 0]
    assert claimed(ledger).trial == "t1"
    assert [(row["trial_id"], row["kept"]) for row in store.marks("run")] == [
        *(("t0", 0), ("t1", 1))
    ]


def test_attempts_are_counted_until_there_is_a_step(store: Trials) -> None:
    ledger = opened(store, 1)
    for attempts in (1, 2):
        claimed(ledger)
        row = store.trial("t0")
        assert row is not None
        assert (row["state"], row["attempts"]) == ("running", attempts)
        store.change_trial("t0", {"lease": 0.0})  # its owner is silent
    claim = claimed(ledger)
    ledger.log(claim, 2, {"loss": 1.0}, 0.1)
    row = store.trial("t0")
    assert row is not None
    assert row["attempts"] == 0
    ledger.finish(claim, "released")  # nobody is blamed for what he did not try
    assert (store.trial("t0") or {})["attempts"] == 0


# Logs and marks


def test_what_was_logged_first_stays(store: Trials) -> None:
    planted(store, a=0)
    assert store.add_log("a", 2, "loss", 0.5, 1.0) == 0.5
    assert store.add_log("a", 2, "loss", 0.75, 9.0) == 0.5
    assert store.add_log("a", 2, "accuracy", 0.75, 1.0) == 0.75
    assert store.logs("a") == [("accuracy", 2, 0.75, 1.0), ("loss", 2, 0.5, 1.0)]
    assert math.isnan(store.add_log("a", 4, "loss", math.nan, 1.0))
    assert math.isnan(store.add_log("a", 4, "loss", 1.0, 1.0))


def test_a_result_that_comes_out_otherwise_is_marked(store: Trials) -> None:
    ledger = opened(store, 1)
    claim = claimed(ledger)
    ledger.log(claim, 2, {"loss": 1.0}, 0.1)
    ledger.log(claim, 2, {"loss": 1.5}, 0.1)
    ledger.log(claim, 2, {"loss": 2.0}, 0.1)
    assert (store.trial("t0") or {})["unlike"] == "loss at step 2: 1.5, before 1"
    assert store.members("run")[0]["unlike"] is not None


@pytest.mark.parametrize("value", [0.1, 0.0, 1e308, math.inf, -math.inf, math.nan, 5e-324])
def test_every_number_comes_back(store: Trials, value: float) -> None:
    planted(store, a=4)
    store.add_log("a", 4, "loss", value, 0.0)
    mark = {"run_id": "run", "trial_id": "a", "rule": 0, "step": 4, "cut": None, "kept": 1}
    store.add_marks([{**mark, "value": value, "why": "", "closing": 0}])
    for found in (
        store.last_value("a", "loss", 9),
        store.history("a", "loss")[0][1],
        store.values_at("run", "loss", 4)["a"],
        store.logs("a")[0][2],
        store.marks("run")[0]["value"],
    ):
        assert found is not None
        assert repr(found) == repr(value)


def test_what_is_asked_of_logs(store: Trials) -> None:
    planted(store, a=6, b=4, c=2)
    for name, steps in {"a": (2, 4, 6), "b": (2, 4), "c": (2,)}.items():
        for step in steps:
            store.add_log(name, step, "loss", step + 0.5, 0.0)
    store.add_log("a", 2, "zeal", 9.0, 0.0)
    assert store.history("a", "loss") == [(2, 2.5), (4, 4.5), (6, 6.5)]
    assert store.last_value("a", "loss", 5) == 4.5
    assert store.last_value("a", "loss", 1) is None
    assert store.last_value("a", "nothing", 9) is None
    assert store.values_at("run", "loss", 4) == {"a": 4.5, "b": 4.5}
    assert store.values_at("run", "zeal", 4) == {"a": 9.0}
    assert store.metrics("a") == ["loss", "zeal"]
    store.drop_logs("a")
    assert (store.metrics("a"), store.metrics("b")) == ([], ["loss"])


def test_marks_are_given_once_and_closing_ones_go(store: Trials) -> None:
    planted(store, a=4, b=4)
    row = {"run_id": "run", "rule": 0, "step": 4, "cut": 1.0, "why": "", "value": None}
    store.add_marks([{**row, "trial_id": "a", "kept": 1, "closing": 0}])
    store.add_marks([{**row, "trial_id": "a", "kept": 0, "closing": 1}])  # it has its verdict
    store.add_marks([{**row, "trial_id": "b", "kept": 0, "closing": 1}])
    assert [(m["trial_id"], m["kept"], m["value"]) for m in store.marks("run")] == [
        *(("a", 1, None), ("b", 0, None))
    ]
    assert [m["trial_id"] for m in store.marks("run", "b")] == ["b"]
    store.drop_marks("run", closing=True)
    assert [m["trial_id"] for m in store.marks("run")] == ["a"]
    store.drop_marks("run")
    assert store.marks("run") == []


# Runs and their trials


def test_a_trial_of_several_runs(store: Trials) -> None:
    planted(store, "first", a=4, b=0)
    planted(store, "second", a=4)
    store.change_member("second", "a", {"target": 6, "steps": 20})
    assert [(row["id"], row["target"], row["ends"]) for row in store.memberships("a")] == [
        *(("first", 10, 10), ("second", 6, 20))
    ]
    assert not add_member(store, "first", "a", 7)  # it is in it already
    assert [row["ordinal"] for row in store.members("first")] == [0, 1]
    assert [row["trial"] for row in store.standings("first")] == ["a", "b"]
    assert store.trials() == ["a", "b"]


def test_a_trial_is_not_written_over(store: Trials) -> None:
    planted(store, a=4)
    store.add_trial({"id": "a", "network": "x", "config": "{}", "seed": 1, "log_every": 1})
    row = store.trial("a")
    assert row is not None
    assert (row["network"], row["step"]) == ("n", 4)


def test_a_run_that_is_dropped_takes_its_own_trials(store: Trials) -> None:
    planted(store, "first", a=4, b=4, c=4)
    planted(store, "second", b=4)
    for name in "abc":
        store.add_log(name, 4, "loss", 1.0, 0.0)
    assert store.drop_run("first") == ["a", "c"]
    assert store.trials() == ["b"]
    assert [store.metrics(name) for name in "abc"] == [[], ["loss"], []]
    assert (store.run("first"), [row["id"] for row in store.runs()]) == (None, ["second"])


def test_whose_files_are_needed(store: Trials) -> None:
    planted(store, "going", a=4)
    planted(store, "past", b=4, c=4, d=4)
    store.change_run("past", {"state": "over"})
    store.change_member("going", "a", {"stopped": 1})
    store.change_member("past", "c", {"stopped": 1})
    store.change_member("past", "d", {"stopped": 1})
    store.change_trial("d", {"state": "running"})
    assert store.needed() == {"a", "b", "d"}  # c was stopped for good


def test_runs_by_state_in_their_order(store: Trials) -> None:
    for name, state in (("z", "over"), ("b", "running"), ("a", "running")):
        add_run(store, name, state=state)
    assert [row["id"] for row in store.runs()] == ["z", "b", "a"]
    assert [row["id"] for row in store.runs("running")] == ["b", "a"]
    assert store.run("nothing") is None


# How statements find what they look for


def test_no_statement_goes_through_all_trials_or_logs(store: Trials) -> None:
    """With thousands of trials each claim would."""
    ledger = opened(store, 3)
    said: set[str] = set()
    store._connection.set_trace_callback(said.add)
    while (claim := ledger.claim(OWNER)) is not OVER:
        assert isinstance(claim, Claim)
        ledger.renew(claim)
        for step in range(claim.step + 2, claim.target + 1, 2):
            ledger.log(claim, step, {"loss": float(claim.trial[1])}, 0.1)
        ledger.finish(claim, "ready")
    ledger.result("run")
    store.values_at("run", "loss", 4)
    store._connection.set_trace_callback(None)
    looked = [text for text in said if text.startswith(("SELECT", "UPDATE", "INSERT"))]
    assert len(looked) > 20
    scans = []
    for text in looked:
        plan = store._rows(f"EXPLAIN QUERY PLAN {text}")
        scans += [row["detail"] for row in plan if row["detail"].startswith("SCAN")]
    # Runs are few; of tokens there is one; those who work are an index of their own.
    known = ("SCAN run", "SCAN token", "SCAN trial USING INDEX trial_running")
    assert [scan for scan in scans if scan not in known] == []
