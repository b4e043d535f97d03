"""MLflow's SQLite store: read-only, and nothing but plain reads of plain tables is let through."""

from __future__ import annotations

import itertools
import math
import re
import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from dlv.adapters.mlflow.files import (
    ID,
    MOST_ENTRIES,
    MOST_POINTS,
    MOST_TEXT,
    MOST_TEXTS,
    Experiment,
    LoggedModel,
    Points,
    Registered,
    Run,
)
from dlv.adapters.source import Source
from dlv.errors import Conflict, Damaged, StorageError, UnsafeInput, UsageError

MAGIC = b"SQLite format 3\0"
_LARGEST = 1.7976931348623157e308  # as MLflow writes an infinite value
_NAME = re.compile(r"[a-z][a-z_0-9]{0,60}")
_WORK, _LEAST_WORK = 100_000, 20_000_000  # steps of SQLite's machine
_SET = ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0", "query_only = ON")
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_TRANSACTION}

Row = tuple[Any, ...]


def is_store(path: Path) -> bool:
    """Whether a file is an SQLite database."""
    with Source(str(path)) as file:
        return file.size >= 512 and bytes(file.read(0, len(MAGIC))) == MAGIC


class DatabaseStore:
    """One `mlflow.db`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        folder = path.parent
        self.bases = [folder, folder / "mlruns", folder / "mlartifacts"]
        self.skipped: list[tuple[str, str]] = []
        self.notes: list[str] = []
        self._registry: dict[str, list[Registered]] | None = None
        try:
            self._db = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10, isolation_level=None
            )
        except sqlite3.Error as error:
            raise StorageError(f"cannot open {path.name}", why=str(error)) from error
        try:
            self._columns = self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> dict[str, set[str]]:
        """Tables by name, with their stored columns. A view could compute anything, so none is."""
        self._db.text_factory = lambda data: data.decode("utf-8", "replace")
        self._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 4 * MOST_TEXT)
        self._db.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        for line in _SET:
            self._rows(f"PRAGMA {line}")
        self._rows("BEGIN")  # one state of the store, though a run may be writing to it
        tables: dict[str, set[str]] = {}
        for name, kind, statement in self._rows("SELECT name, type, sql FROM sqlite_master"):
            plain = isinstance(statement, str) and "VIRTUAL" not in statement[:40].upper()
            if kind == "table" and plain and isinstance(name, str) and _NAME.fullmatch(name):
                rows = self._rows(f"PRAGMA table_xinfo({name})")
                tables[name] = {row[1] for row in rows if row[6] == 0}
        self._db.set_authorizer(_authorize)
        for table, key in (("experiments", "experiment_id"), ("runs", "run_uuid")):
            if key not in tables.get(table, ()):
                raise UsageError(
                    f"{self.path.name} is no MLflow store",
                    why=f"it has no table `{table}` as MLflow makes it",
                )
        return tables

    def _stream(self, statement: str, parameters: Sequence[Any] = ()) -> Generator[Row, None, None]:
        # Pages that point at one another make a small file an endless table.
        budget = iter(range((self.path.stat().st_size * 8 + _LEAST_WORK) // _WORK))
        self._db.set_progress_handler(lambda: next(budget, None) is None, _WORK)
        try:
            yield from self._db.execute(statement, parameters)
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise Conflict(f"{self.path.name} is in use", why=str(error)) from error
            if "interrupted" in str(error):
                raise Damaged(f"{self.path.name} holds more than its size allows") from error
            raise Damaged(f"{self.path.name} cannot be read", why=str(error)) from error
        except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
            raise Damaged(f"{self.path.name} is damaged", why=str(error)) from error

    def _rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        with closing(self._stream(statement, parameters)) as rows:
            found, size = [], 0
            for row in itertools.islice(rows, MOST_ENTRIES + 1):
                found.append(row)
                size += sum(len(cell) for cell in row if isinstance(cell, (str, bytes)))
                if size > MOST_TEXTS:
                    raise UnsafeInput(f"{self.path.name} holds too much", why="too long texts")
        if len(found) > MOST_ENTRIES:
            raise UnsafeInput(f"{self.path.name} holds too much", why=f"over {MOST_ENTRIES} rows")
        return found

    def _select(self, table: str, columns: str, where: str = "", *given: Any) -> list[Row]:
        """Rows in the order in which they were written; None for what this MLflow has not yet."""
        statement = self._statement(table, columns, where)
        return [] if statement is None else self._rows(statement, given)

    def _statement(self, table: str, columns: str, where: str) -> str | None:
        there = self._columns.get(table)
        if there is None or (where and where not in there):
            return None
        names = ", ".join(f'"{c}"' if c in there else "NULL" for c in columns.split())
        return f"SELECT {names} FROM {table}{f' WHERE {where} = ?' if where else ''} ORDER BY rowid"

    def experiments(self) -> list[Experiment]:
        rows = self._select("experiments", "experiment_id name artifact_location lifecycle_stage")
        return [
            Experiment(_text(key), _text(name) or _text(key), _text(location) or None)
            for key, name, location, stage in rows
            if _text(stage) in ("", "active")
        ]

    def runs(self, experiment: Experiment) -> Iterator[Run]:
        key = int(experiment.id) if experiment.id.isdecimal() else experiment.id
        models = self._models(key)
        rows = self._select(
            "runs",
            "run_uuid name status start_time end_time user_id artifact_uri lifecycle_stage",
            "experiment_id",
            key,
        )
        for run_id, name, status, start, end, user, artifacts, stage in rows:
            if not isinstance(run_id, str) or not ID.fullmatch(run_id):
                self.skipped.append((repr(run_id)[:100], "this is not the id of a run"))
                continue
            own = models.pop(run_id, [])
            if _text(stage) not in ("", "active"):
                self.skipped.append((run_id, "it is deleted in MLflow"))
                continue
            tags = self._pairs("tags", "key value", "run_uuid", run_id)
            yield Run(
                id=run_id,
                name=tags.get("mlflow.runName") or _text(name),
                experiment=experiment,
                status=_text(status),
                start=_whole(start),
                end=_whole(end),
                user=tags.get("mlflow.user") or _text(user),
                artifacts=_text(artifacts) or None,
                params=self._pairs("params", "key value", "run_uuid", run_id),
                tags=tags,
                models=own,
                registered=self._registered().get(run_id, []),
            )
        self.skipped += [
            (model.id, "the run that logged this model is not in the store")
            for waiting in models.values()
            for model in waiting
        ]

    def _pairs(self, table: str, columns: str, where: str, given: str) -> dict[str, str]:
        rows = self._select(table, columns, where, given)
        return {_text(key): _text(value) for key, value in rows}

    def metrics(self, run: Run) -> dict[str, Points]:
        found: dict[str, Points] = {}
        statement = self._statement("metrics", "key value timestamp step is_nan", "run_uuid")
        if statement is None:
            return found
        with closing(self._stream(statement, (run.id,))) as rows:
            for count, (key, *point) in enumerate(rows):
                if count >= MOST_POINTS or len(found) > MOST_ENTRIES:
                    raise UnsafeInput(f"the run has more than {MOST_POINTS} points")
                _add(found.setdefault(_text(key), Points()), _text(key), *point)
        return found

    def _models(self, experiment: int | str) -> dict[str, list[LoggedModel]]:
        """Models of MLflow 3 by the run that logged them, oldest first."""
        found: dict[str, list[LoggedModel]] = {}
        rows = self._select("inputs", "destination_id step", "destination_type", "MODEL_OUTPUT")
        steps = {_text(model): _whole(step) for model, step in rows}
        rows = self._select(
            "logged_models",
            "model_id name artifact_location source_run_id lifecycle_stage",
            "experiment_id",
            experiment,
        )
        for model, name, location, run, stage in rows:
            if not isinstance(model, str) or not ID.fullmatch(model):
                self.skipped.append((repr(model)[:100], "this is not the id of a model"))
            elif _text(stage) not in ("", "active"):
                self.skipped.append((model, "this model is deleted in MLflow"))
            else:
                columns = "param_key param_value"
                params = self._pairs("logged_model_params", columns, "model_id", model)
                made = LoggedModel(
                    *(model, _text(name) or model, steps.get(model)),
                    *(_text(location) or None, params),
                )
                found.setdefault(_text(run), []).append(made)
        return found

    def _registered(self) -> dict[str, list[Registered]]:
        """Versions in the model registry by their run."""
        if self._registry is None:
            self._registry = {}
            aliases: dict[tuple[str, int | None], list[str]] = {}
            for name, version, alias in self._select(
                "registered_model_aliases", "name version alias"
            ):
                aliases.setdefault((_text(name), _whole(version)), []).append(_text(alias))
            for name, version, run in self._select("model_versions", "name version run_id"):
                number = _whole(version)
                if number is None:
                    continue
                named = tuple(sorted(aliases.get((_text(name), number), ())))
                made = Registered(_text(name), number, named)
                self._registry.setdefault(_text(run), []).append(made)
            for versions in self._registry.values():
                versions.sort(key=lambda known: (known.name, known.version))
        return self._registry

    def close(self) -> None:
        self._db.close()


def _authorize(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _add(points: Points, key: str, value: Any, milliseconds: Any, step: Any, nan: Any) -> None:
    try:
        number = math.nan if nan else float(value)
        if abs(number) == _LARGEST:
            number = math.copysign(math.inf, number)
        if not -(2**53) < int(milliseconds) < 2**53:
            raise ValueError("the time is out of range")
        points.add(int(step or 0), int(milliseconds), number)
    except (TypeError, ValueError, OverflowError) as error:
        why = f"a point of `{key[:100]}`: {error}"
        raise Damaged("a metric of the store is none", why=why[:300]) from error


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        raise Damaged("a text of the store is binary", why=repr(value[:40]))
    return "" if value is None else str(value)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None
