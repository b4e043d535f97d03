"""Both stores of MLflow: what the real one wrote, and what somebody made to do harm."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.adapters import mlflow, mlflow_database
from dlv.adapters.mlflow import FileStore, Points, Run, Store, locate, typed, version_name
from dlv.adapters.mlflow_database import DatabaseStore
from dlv.errors import Conflict, Damaged, DlvError, NotFound, UnsafeInput, UsageError
from dlv.objects.manifest import check_name

RUN = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("0.1", 0.1),
        ("1e-08", 1e-08),
        ("1e+30", 1e30),
        ("-0.0", -0.0),
        ("True", True),
        ("False", False),
        ("None", None),
        (str(2**64 - 1), 2**64 - 1),
    ],
)
def test_what_python_would_print_so(text: str, value: object) -> None:
    found = typed(text)
    assert (found, type(found), str(found)) == (value, type(value), text)


@pytest.mark.parametrize(
    "text",
    [
        *("007", "+1", "1_000", "-0", "1e-4", "0.10", ".5", "5.", "1e400", "nan", "inf", "١"),
        *("true", "none", "", " 1", "1 ", "0x10", "[1, 2]", str(2**64), "9" * 5000, "1.0f"),
    ],
)
def test_other_texts_stay_texts(text: str) -> None:
    assert typed(text) == text


@given(st.one_of(st.text(), st.floats().map(str), st.integers().map(str)))
def test_no_text_is_lost(text: str) -> None:
    found = typed(text)
    assert str(found) == text
    if isinstance(found, float):
        assert math.isfinite(found)


@given(st.text(max_size=200))
def test_names_are_valid_or_empty(text: str) -> None:
    name = version_name(text)
    if name and len(name) != 64:
        check_name(name)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Digits CNN", "Digits-CNN"),
        ("/Users/ada/first try!", "Users-ada-first-try"),
        ("lenet_5.v2", "lenet_5.v2"),
        ("..", ""),
        ("数字", ""),
        ("latest", "latest-model"),
        ("a@b", "a-b"),
    ],
)
def test_names(text: str, name: str) -> None:
    assert version_name(text) == name


def made(folder: Path, *parts: str) -> Path:
    path = Path(folder, *parts)
    path.mkdir(parents=True)
    return path


@pytest.mark.parametrize(
    "uri",
    [
        f"file:///home/ada/mlruns/1/{RUN}/artifacts",
        f"/home/ada/mlruns/1/{RUN}/artifacts",
        f"mlruns/1/{RUN}/artifacts",
        f"./mlruns/1/{RUN}/artifacts/",
        f"file:///C:/Users/ada/mlruns/1/{RUN}/artifacts",
        f"C:\\Users\\ada\\mlruns\\1\\{RUN}\\artifacts",
        f"file:///home/a%20da/mlruns/1/{RUN}/artifacts",
    ],
)
def test_a_store_that_was_moved(tmp_path: Path, uri: str) -> None:
    inside = made(tmp_path, "store", "1", RUN, "artifacts")
    assert locate([tmp_path / "store"], uri, RUN) == inside


def test_beside_the_store(tmp_path: Path) -> None:
    """What a tracking server wrote: the address does not say where."""
    there = made(tmp_path, "mlartifacts", "1", RUN, "artifacts")
    uri = f"mlflow-artifacts:/1/{RUN}/artifacts"
    assert locate([tmp_path / "mlruns", tmp_path / "mlartifacts"], uri, RUN) == there


def test_outside_the_store_only_where_the_user_says(tmp_path: Path) -> None:
    store, other = made(tmp_path, "store"), made(tmp_path, "other", RUN, "artifacts")
    third = made(tmp_path, "else")
    for uri in (str(other), other.as_uri()):
        assert locate([store, tmp_path / "other"], uri, RUN) == other
        for bases in ([store], [store, third]):
            with pytest.raises(UsageError, match="outside the store, and --artifacts DIR"):
                locate(bases, uri, RUN)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        (f"s3://bucket/1/{RUN}/artifacts", "s3://bucket, which dlv does not fetch"),
        (f"dbfs:/1/{RUN}/artifacts", "dlv does not fetch"),
        (f"http://[::1/{RUN}", "an address"),
        (f"/home/{RUN}\0/artifacts", "not an address"),
        (f"file:///store/../secret/{RUN}/artifacts", "not that of a run"),
        (f"file:///store/%2e%2e/secret/{RUN}/artifacts", "not that of a run"),
        ("/etc", "not that of a run"),
        ("", "not that of a run"),
    ],
)
def test_refused(tmp_path: Path, uri: str, message: str) -> None:
    owner = RUN if "\0" not in uri else f"{RUN}\0"
    with pytest.raises(UsageError, match=message):
        locate([tmp_path], uri, owner)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="not there"):
        locate([tmp_path], f"/nowhere/1/{RUN}/artifacts", RUN)


def test_a_link_out_of_the_store(tmp_path: Path) -> None:
    store, secret = made(tmp_path, "store", "1", RUN), made(tmp_path, "secret")
    (store / "artifacts").symlink_to(secret)
    with pytest.raises(UsageError, match="link leads out"):
        locate([tmp_path / "store"], f"/x/1/{RUN}/artifacts", RUN)


def test_steps_are_64_bits() -> None:
    points = Points()
    points.add(2**63 - 1, 1500, math.nan)
    assert (points.steps[0], points.walls[0]) == (2**63 - 1, 1.5)
    with pytest.raises(OverflowError):
        points.add(2**63, 0, 0.0)


FIXTURES = Path(__file__).parents[1] / "fixtures" / "mlflow"
KINDS = ["files", "database"]


def copied(kind: str, folder: Path) -> Path:
    target = folder / "store"
    if kind == "files":
        shutil.copytree(FIXTURES / "files" / "mlruns", target)
        return target
    target.mkdir()
    shutil.copy(FIXTURES / "database" / "mlflow.db", target)
    return target / "mlflow.db"


def opened(path: Path) -> Store:
    return FileStore(path) if path.is_dir() else DatabaseStore(path)


def read(store: Store) -> dict[str, Run]:
    return {run.name: run for each in store.experiments() for run in store.runs(each)}


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return opened(copied(request.param, tmp_path))


def test_runs(store: Store) -> None:
    names = {each.name for each in store.experiments()}
    assert names == {"Default", "Digits CNN", "in a bucket"}
    runs = read(store)
    assert set(runs) == {"baseline", "fine-tuned", "diverged", "far away"}
    assert [why for _, why in store.skipped] == ["it is deleted in MLflow"]
    first = runs["baseline"]
    assert (first.status, first.start, first.end) == (
        "FINISHED",
        1_700_000_000_000,
        1_700_000_060_000,
    )
    assert first.experiment.name == "Digits CNN"
    assert first.user == "ada"
    assert first.params == {
        "lr": "0.1",
        "epochs": "3",
        "nesterov": "True",
        "momentum": "None",
        "seed": "007",
        "optimizer": "sgd",
        "decay": "1e-4",
        "eps": "1e-08",
        "data/path": "digits.npz",
    }
    assert first.tags["team"] == "vision"
    assert first.tags["mlflow.note.content"] == "The first one.\n\nKept for comparison."
    assert first.artifacts is not None
    assert first.artifacts.endswith(f"{first.id}/artifacts")
    assert runs["diverged"].status == "FAILED"
    assert runs["far away"].artifacts == f"s3://models/runs/{runs['far away'].id}/artifacts"


def test_metrics(store: Store) -> None:
    runs = read(store)
    metrics = store.metrics(runs["baseline"])
    assert set(metrics) == {"loss", "val/accuracy"}
    loss = metrics["loss"]
    assert list(loss.steps) == [0, 1, 2, 3, 4, 5]
    assert list(loss.values[:2]) + list(loss.values[3:]) == [2.5, 1.25, 0.5, math.inf, -math.inf]
    assert math.isnan(loss.values[2])
    assert loss.walls[1] == 1_700_000_000.501
    same = metrics["val/accuracy"]
    assert (list(same.steps), list(same.values)) == ([7, 7, 7], [0.0, 0.125, 0.25])
    assert store.notes == []


def test_models(store: Store) -> None:
    run = read(store)["fine-tuned"]
    assert run.parent == read(store)["baseline"].id
    assert [(model.name, model.step, model.params) for model in run.models] == [
        ("lenet", 10, {"width": "8"}),
        ("lenet", 20, {"width": "8"}),
    ]
    assert [(r.name, r.version, r.aliases) for r in run.registered] == [("lenet", 1, ("champion",))]


def test_which_is_which(tmp_path: Path) -> None:
    assert mlflow.is_store(FIXTURES / "files" / "mlruns")
    assert not mlflow.is_store(FIXTURES / "files")
    assert not mlflow.is_store(tmp_path / "nothing")
    assert mlflow_database.is_database(FIXTURES / "database" / "mlflow.db")
    assert not mlflow_database.is_database(FIXTURES / "make.py")


def test_an_old_store_without_steps_and_a_new_one_with_data_sets(tmp_path: Path) -> None:
    path = copied("files", tmp_path)
    store = FileStore(path)
    run = read(store)["diverged"]
    metric = path / run.experiment.id / run.id / "metrics" / "old"
    metric.write_text("1500 2.0\n2500 1.0 3 mnist 0af1\n")
    points = store.metrics(run)["old"]
    assert (list(points.steps), list(points.values)) == ([0, 3], [2.0, 1.0])


def test_a_line_that_is_being_written(tmp_path: Path) -> None:
    path = copied("files", tmp_path)
    store = FileStore(path)
    run = read(store)["diverged"]
    with (path / run.experiment.id / run.id / "metrics" / "loss").open("a") as out:
        out.write("1700000300501 1.2")
    assert list(store.metrics(run)["loss"].values) == [1e30]
    assert store.notes == ["metrics/loss: the last line is cut and skipped"]


@pytest.mark.parametrize(
    "line",
    [
        *(b"1 2 3 4\n", b"x 1.0 0\n", b"1 x 0\n", b"1 1.0 0.5\n", b"\xff\xfe\n"),
        *(b"1 1.0 99999999999999999999\n", b"99999999999999999999 1.0 0\n"),
        b"1" * 3000 + b" 1.0 0\n",
    ],
)
def test_a_broken_metric(tmp_path: Path, line: bytes) -> None:
    path = copied("files", tmp_path)
    store = FileStore(path)
    run = read(store)["diverged"]
    (path / run.experiment.id / run.id / "metrics" / "loss").write_bytes(b"1 1.0 0\n" + line)
    with pytest.raises(Damaged, match="metrics/loss, line 2"):
        store.metrics(run)


def test_a_line_without_end(tmp_path: Path) -> None:
    path = copied("files", tmp_path)
    store = FileStore(path)
    run = read(store)["diverged"]
    with (path / run.experiment.id / run.id / "metrics" / "loss").open("wb") as out:
        out.truncate(300 << 20)
    with pytest.raises(UnsafeInput, match="too long"):
        store.metrics(run)


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{b}: &{b} [*{a},*{a},*{a},*{a},*{a},*{a},*{a},*{a},*{a}]\n"
    for a, b in zip("abcdefghi", "bcdefghij", strict=True)
)


def _link(path: Path, target: Path) -> None:
    path.unlink()
    path.symlink_to(target)


HOSTILE_RUNS: dict[str, Callable[[Path, Path], object]] = {
    "bomb": lambda run, _: (run / "meta.yaml").write_text(BOMB),
    "object": lambda run, _: (run / "meta.yaml").write_text("a: !!python/object/apply:os.abort []"),
    "binary": lambda run, _: (run / "meta.yaml").write_bytes(b"\x80\x02}q"),
    "a_list": lambda run, _: (run / "meta.yaml").write_text("[1, 2]"),
    "list_of_names": lambda run, _: (run / "meta.yaml").write_text("user_id: [1]\nstatus: 3"),
    "deep": lambda run, _: (run / "meta.yaml").write_text("a: " + "[" * 5000),
    "huge_parameter": lambda run, _: (run / "params" / "x").write_bytes(bytes(2 << 20)),
    "bad_name": lambda run, _: run.rename(run.parent / ".. x"),
}


@pytest.mark.parametrize("name", HOSTILE_RUNS)
def test_a_hostile_run_is_passed_over(tmp_path: Path, name: str) -> None:
    path = copied("files", tmp_path)
    run = read(FileStore(path))["diverged"]
    folder = path / run.experiment.id / run.id
    (folder / "params").mkdir(exist_ok=True)
    HOSTILE_RUNS[name](folder, tmp_path)
    store = FileStore(path)
    assert set(read(store)) == {"baseline", "fine-tuned", "far away"}
    assert len(store.skipped) == 2


def test_links_are_not_followed(tmp_path: Path) -> None:
    path = copied("files", tmp_path)
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("1 1.0 1\n")
    run = read(FileStore(path))["diverged"]
    folder = path / run.experiment.id / run.id
    for part in ("params", "metrics", "tags"):
        (folder / part).mkdir(exist_ok=True)
        (folder / part / "stolen").symlink_to(secret / "key")
        (folder / part / "more").symlink_to(secret)
    (path / run.experiment.id / "linked").symlink_to(folder)
    store = FileStore(path)
    runs = read(store)
    assert len(runs) == 4
    assert runs["diverged"].params == {}
    assert set(runs["diverged"].tags) == {"mlflow.runName"}
    assert set(store.metrics(runs["diverged"])) == {"loss"}
    shutil.rmtree(folder / "metrics")
    (folder / "metrics").symlink_to(secret)
    assert store.metrics(runs["diverged"]) == {}
    _link(folder / "meta.yaml", secret / "key")
    assert set(read(FileStore(path))) == {"baseline", "fine-tuned", "far away"}


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = copied("files", tmp_path)
    run = read(FileStore(path))["diverged"]
    os.mkfifo(path / run.experiment.id / run.id / "metrics" / "pipe")
    store = FileStore(path)
    assert set(store.metrics(read(store)["diverged"])) == {"loss"}


def test_deep_folders(tmp_path: Path) -> None:
    path = copied("files", tmp_path)
    run = read(FileStore(path))["diverged"]
    Path(path, run.experiment.id, run.id, "params", *["x"] * 100).mkdir(parents=True)
    store = FileStore(path)
    read(store)
    assert "nested too deeply" in dict(store.skipped)[run.id]


# The database


def change(path: Path, *statements: str) -> Path:
    db = sqlite3.connect(path)
    db.execute("PRAGMA writable_schema = ON")
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()
    return path


def everything(path: Path) -> Store:
    store = opened(path)
    try:
        for run in read(store).values():
            store.metrics(run)
    finally:
        store.close()
    return store


def test_it_is_only_read(tmp_path: Path) -> None:
    path = copied("database", tmp_path)
    before = path.read_bytes()
    everything(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == ["mlflow.db"]


def test_tables_of_an_old_mlflow(tmp_path: Path) -> None:
    path = copied("database", tmp_path)
    tables = ["logged_models", "logged_model_params", "inputs", "registered_model_aliases"]
    change(path, *[f"DROP TABLE {table}" for table in tables])
    change(
        path,
        "ALTER TABLE metrics RENAME COLUMN is_nan TO other",
        "ALTER TABLE runs DROP COLUMN name",
    )
    runs = read(opened(path))
    assert set(runs) == {"baseline", "fine-tuned", "diverged", "far away"}  # by their tags
    assert runs["fine-tuned"].models == []


HOSTILE_DATABASES: dict[str, list[str]] = {
    "a_view": [
        "ALTER TABLE runs RENAME TO gone",
        "CREATE VIEW runs AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
        " SELECT i AS run_uuid, 1 AS experiment_id FROM n",
    ],
    "computed": [
        "CREATE TABLE other (y, experiment_id, run_uuid AS (hex(zeroblob(1000000000))))",
        "DROP TABLE runs",
        "ALTER TABLE other RENAME TO runs",
    ],
    "malformed": ["UPDATE sqlite_master SET sql = 'CREATE TABLE x(' WHERE name = 'runs'"],
    "binary_text": ["UPDATE experiments SET name = x'00ff' WHERE experiment_id = 1"],
    "text_for_numbers": ["UPDATE metrics SET value = 'abc' WHERE step = 0"],
    "large_step": ["UPDATE metrics SET step = 1e300"],
    "large_time": ["UPDATE metrics SET timestamp = 9e18"],
    "another": ["DROP TABLE runs"],
}


@pytest.mark.parametrize("name", HOSTILE_DATABASES)
def test_a_hostile_database(tmp_path: Path, name: str) -> None:
    path = change(copied("database", tmp_path), *HOSTILE_DATABASES[name])
    with pytest.raises(DlvError) as caught:
        everything(path)
    # Not even begun with, where it is no table as MLflow makes it.
    wanted = UsageError if name in ("a_view", "computed", "another") else Damaged
    assert isinstance(caught.value, wanted)


def test_triggers_and_functions_never_run(tmp_path: Path) -> None:
    path = change(
        copied("database", tmp_path),
        "CREATE TABLE log (x)",
        "CREATE TRIGGER t AFTER INSERT ON runs"
        " BEGIN INSERT INTO log VALUES (load_extension('x')); END",
    )
    store = DatabaseStore(path)
    assert len(read(store)) == 4
    for statement in ("SELECT hex('x')", "ATTACH 'x' AS y", "DELETE FROM runs"):
        with pytest.raises(Damaged):
            store._rows(statement)
    store.close()


def test_ids_that_are_paths(tmp_path: Path) -> None:
    path = change(
        copied("database", tmp_path), "UPDATE runs SET run_uuid = '../../x' WHERE name = 'diverged'"
    )
    store = opened(path)
    assert len(read(store)) == 3
    assert ("'../../x'", "this is not the id of a run") in store.skipped


def test_a_damaged_file(tmp_path: Path) -> None:
    """Whatever byte is wrong: an error of ours, or none."""
    path = copied("database", tmp_path)
    whole = path.read_bytes()
    for position in range(0, len(whole), 1499):
        broken = bytearray(whole)
        broken[position] ^= 0xFF
        path.write_bytes(broken)
        try:
            everything(path)
        except DlvError:
            continue
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Damaged):
        everything(path)


def test_a_store_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = copied("database", tmp_path)
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, **{**k, "timeout": 0.01}))
    writer = connect(path, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    with pytest.raises(Conflict, match="in use"):
        DatabaseStore(path)
    writer.close()


def test_texts_that_are_too_much_together(tmp_path: Path) -> None:
    """Small on disk: files of holes."""
    path = copied("files", tmp_path)
    run = read(opened(path))["baseline"]
    folder = path / run.experiment.id / run.id / "params"
    for number in range(80):
        with (folder / f"p{number}").open("wb") as out:
            out.truncate(1 << 20)
    store = opened(path)
    assert "baseline" not in read(store)
    assert any("is too large" in why for _, why in store.skipped)


def test_a_database_whose_rows_are_too_much(tmp_path: Path) -> None:
    path = copied("database", tmp_path)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        key = db.execute("SELECT run_uuid FROM runs LIMIT 1").fetchone()[0]
        db.execute("PRAGMA foreign_keys = OFF")
        for number in range(70):
            row = (f"k{number}", "x" * (1 << 20), key)
            db.execute("INSERT INTO params(key, value, run_uuid) VALUES (?, ?, ?)", row)
    with pytest.raises(UnsafeInput, match="too large"):
        read(opened(path))


def test_a_table_that_is_longer_than_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copied("database", tmp_path)
    monkeypatch.setattr(mlflow_database, "_WORK", 1)
    monkeypatch.setattr(mlflow_database, "_LEAST_WORK", -8 * path.stat().st_size + 3)
    with pytest.raises(Damaged, match="more than its size allows"):
        read(opened(path))
