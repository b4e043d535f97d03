"""MLflow's store in SQLite, `mlflow.db`, read without MLflow and as a file that may be hostile."""

from __future__ import annotations

import itertools
import math
import re
import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from dlv.adapters.mlflow import (
    CONTEXT,
    ID,
    MOST_ENTRIES,
    MOST_POINTS,
    MOST_TEXT,
    MOST_TEXTS,
    DatasetInput,
    Experiment,
    LoggedModel,
    Points,
    Registered,
    Run,
    Store,
    by_name,
    stage_of,
)
from dlv.adapters.source import Source
from dlv.errors import Conflict, Damaged, StorageError, UnsafeInput, UsageError

MAGIC = b"SQLite format 3\0"
_INFINITE = 1.7976931348623157e308  # as MLflow writes an infinite value
_NAME = re.compile(r"[a-z][a-z_0-9]{0,60}")
_WORK, _LEAST_WORK = 100_000, 20_000_000  # steps of SQLite's machine
_SET = ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0", "query_only = ON")
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_TRANSACTION}

Row = tuple[Any, ...]


def is_database(path: Path) -> bool:
    """Whether a file is an SQLite database."""
    with Source(str(path)) as file:
        return file.size >= 512 and bytes(file.read(0, len(MAGIC))) == MAGIC


class DatabaseStore(Store):
    """One `mlflow.db`, read-only: nothing but plain reads of plain tables is let through."""

    def __init__(self, path: Path) -> None:
        folder = path.parent
        super().__init__(folder, folder / "mlruns", folder / "mlartifacts")
        self.path = path
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
                    f"{self.path.name} is not an MLflow store",
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
                raise Damaged(f"{self.path.name} contains more than its size allows") from error
            raise Damaged(f"{self.path.name} cannot be read", why=str(error)) from error
        except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
            raise Damaged(f"{self.path.name} is corrupt", why=str(error)) from error

    def _rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        with closing(self._stream(statement, parameters)) as rows:
            found, size = [], 0
            for row in itertools.islice(rows, MOST_ENTRIES + 1):
                found.append(row)
                size += sum(len(cell) for cell in row if isinstance(cell, (str, bytes)))
                if size > MOST_TEXTS:
                    raise UnsafeInput(f"{self.path.name} is too large", why="too long strings")
        if len(found) > MOST_ENTRIES:
            raise UnsafeInput(f"{self.path.name} is too large", why=f"over {MOST_ENTRIES} rows")
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
            Experiment(
                _cell_text(key), _cell_text(name) or _cell_text(key), _cell_text(location) or None
            )
            for key, name, location, stage in rows
            if _cell_text(stage) in ("", "active")
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
            if _cell_text(stage) not in ("", "active"):
                self.skipped.append((run_id, "it is deleted in MLflow"))
                continue
            tags = self._pairs("tags", "key value", "run_uuid", run_id)
            yield Run(
                id=run_id,
                name=tags.get("mlflow.runName") or _cell_text(name),
                experiment=experiment,
                status=_cell_text(status),
                start=_cell_whole(start),
                end=_cell_whole(end),
                user=tags.get("mlflow.user") or _cell_text(user),
                artifacts=_cell_text(artifacts) or None,
                params=self._pairs("params", "key value", "run_uuid", run_id),
                tags=tags,
                models=own,
                registered=self.registered.get(run_id, []),
                datasets=self._datasets(run_id),
            )
        self._skip_orphans(models)

    def _datasets(self, run: str) -> list[DatasetInput]:
        """The data that a run has as inputs, in the order of their names."""
        found = []
        columns = "input_uuid source_type source_id destination_type"
        for key, kind, data, of in self._select("inputs", columns, "destination_id", run):
            if (kind, of) != ("DATASET", "RUN"):
                continue
            columns = "name digest dataset_source_type dataset_source"
            context = self._pairs("input_tags", "name value", "input_uuid", _cell_text(key))
            for row in self._select("datasets", columns, "dataset_uuid", _cell_text(data)):
                name, digest, kind, source = map(_cell_text, row)
                found.append(DatasetInput(name, digest, kind, source, context.get(CONTEXT, "")))
        return sorted(found, key=by_name)

    def _pairs(self, table: str, columns: str, where: str, value: str) -> dict[str, str]:
        rows = self._select(table, columns, where, value)
        return {_cell_text(key): _cell_text(value) for key, value in rows}

    def metrics(self, run: Run) -> dict[str, Points]:
        found: dict[str, Points] = {}
        statement = self._statement("metrics", "key value timestamp step is_nan", "run_uuid")
        if statement is None:
            return found
        with closing(self._stream(statement, (run.id,))) as rows:
            for count, (key, *point) in enumerate(rows):
                if count >= MOST_POINTS or len(found) > MOST_ENTRIES:
                    raise UnsafeInput(f"the run has more than {MOST_POINTS} points")
                _add_point(found.setdefault(_cell_text(key), Points()), _cell_text(key), *point)
        return found

    def _models(self, experiment: int | str) -> dict[str, list[LoggedModel]]:
        """Models of MLflow 3 by the run that logged them, oldest first."""
        found: dict[str, list[LoggedModel]] = {}
        rows = self._select("inputs", "destination_id step", "destination_type", "MODEL_OUTPUT")
        steps = {_cell_text(model): _cell_whole(step) for model, step in rows}
        rows = self._select(
            "logged_models",
            "model_id name artifact_location source_run_id lifecycle_stage",
            "experiment_id",
            experiment,
        )
        for model, name, location, run, stage in rows:
            if not isinstance(model, str) or not ID.fullmatch(model):
                self.skipped.append((repr(model)[:100], "this is not the id of a model"))
            elif _cell_text(stage) not in ("", "active"):
                self.skipped.append((model, "this model is deleted in MLflow"))
            else:
                columns = "param_key param_value"
                params = self._pairs("logged_model_params", columns, "model_id", model)
                found.setdefault(_cell_text(run), []).append(
                    LoggedModel(
                        id=model,
                        name=_cell_text(name) or model,
                        step=steps.get(model),
                        location=_cell_text(location) or None,
                        params=params,
                    )
                )
        return found

    def _registered(self) -> dict[str, list[Registered]]:
        versions: dict[str, list[Registered]] = {}
        aliases: dict[tuple[str, int | None], list[str]] = {}
        for name, version, alias in self._select("registered_model_aliases", "name version alias"):
            place = (_cell_text(name), _cell_whole(version))
            aliases.setdefault(place, []).append(_cell_text(alias))
        tags: dict[tuple[str, int | None], dict[str, str]] = {}
        columns = "name version key value"
        for name, version, key, value in self._select("model_version_tags", columns):
            known = tags.setdefault((_cell_text(name), _cell_whole(version)), {})
            known[_cell_text(key)] = _cell_text(value)
        of_models: dict[str, dict[str, str]] = {}
        for name, key, value in self._select("registered_model_tags", "name key value"):
            of_models.setdefault(_cell_text(name), {})[_cell_text(key)] = _cell_text(value)
        columns = "name version run_id status current_stage"
        for name, version, run, status, stage in self._select("model_versions", columns):
            number = _cell_whole(version)
            if number is not None:
                place = (_cell_text(name), number)
                made = Registered(
                    *(*place, tuple(sorted(aliases.get(place, ())))),
                    status=_cell_text(status),
                    stage=stage_of(_cell_text(stage)),
                    tags=of_models.get(place[0], {}) | tags.get(place, {}),
                )
                versions.setdefault(_cell_text(run), []).append(made)
        return versions

    def close(self) -> None:
        self._db.close()


def _authorize(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _add_point(points: Points, key: str, value: Any, time: Any, step: Any, nan: Any) -> None:
    try:
        number = math.nan if nan else float(value)
        if abs(number) == _INFINITE:
            number = math.copysign(math.inf, number)
        points.add(int(step or 0), int(time), number)
    except (TypeError, ValueError, OverflowError) as error:
        why = f"a point of `{key[:100]}`: {error}"
        raise Damaged("a metric of the store is none", why=why[:300]) from error


def _cell_text(value: Any) -> str:
    if isinstance(value, bytes):
        raise Damaged("a string of the store is binary", why=repr(value[:40]))
    return "" if value is None else str(value)


def _cell_whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None
