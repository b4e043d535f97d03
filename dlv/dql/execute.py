"""From the text of a query to what it gives, one outcome per statement."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dlv.dql.bind.names as names
import dlv.dql.bind.rewrite as rewriting
import dlv.dql.saved as saving
import dlv.dql.words.parser as parser
from dlv.canonical import dumps
from dlv.dql.bind.bound import Bound, ConfigFile, Derivation, Evaluation, Rows
from dlv.dql.bind.trees import changed
from dlv.dql.outcome import Defined, Explained, Model, Networks, Outcome, Table, Trials
from dlv.dql.words import ast
from dlv.errors import UsageError
from dlv.metadata import derived, metrics, versions
from dlv.metadata.database import Database
from dlv.metadata.known_names import KnownNames
from dlv.metadata.rows import Row, VersionCell
from dlv.metadata.select import statement as select
from dlv.metadata.select import wording
from dlv.metadata.select.relations import Derived, Query
from dlv.repository.handle import Repository

if TYPE_CHECKING:
    import dlv.weights.store as weights
    from dlv.dql.derive.origins import Origin
    from dlv.dql.trials.candidates import Candidate
    from dlv.dql.trials.evaluating import Evaluating
    from dlv.training.ledger.progress import Progress

_KEPT = 64  # series


class Points:
    """Asks for one point after the other; those of the series read last are at hand."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._store: weights.MatrixStore | None = None
        self._series = lru_cache(_KEPT)(self._read)

    def at(self, version: str, name: str, step: int) -> float | None:
        """The value at just this step, the last one if it was written twice."""
        return self._series(version, name).get(step)

    def _read(self, version: str, name: str) -> dict[int, float]:
        db = self._repository.database
        found = versions.by_id(db, version)
        summaries = [] if found is None else metrics.of_version(db, found.key)
        wanted = next((each for each in summaries if each.name == name), None)
        if wanted is None:
            return {}
        import dlv.weights.store as weights

        if self._store is None:
            self._store = weights.MatrixStore.of(self._repository)
        points = weights.stored_series(self._store, wanted.hash)
        return dict(zip(points.steps, points.values, strict=True))


# As the grammar has them: texts, and what stands between words.
_GAPS = re.compile(
    r"""("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?:\s|--(?=\s|\Z)[^\n]*|#[^\n]*)+"""
)
_ON = re.compile(r"\bon\Z", re.IGNORECASE)


def question(text: str, query: ast.Query) -> str:
    """The text of a query without `on ..`, in one line: with more workers it is the same."""
    begin, end = query.span.start, query.span.end
    where = query.body.on.span if isinstance(query.body, ast.Evaluate) and query.body.on else None
    if where is None:
        return _one_line(text[begin:end])
    before, behind = _one_line(text[begin : where.start]), _one_line(text[where.end : end])
    return f"{_ON.sub('', before).rstrip()} {behind}".rstrip()


def _one_line(text: str) -> str:
    return _GAPS.sub(lambda found: found[1] or " ", text).strip()


MOST = 20  # conditions that are told of


def survivor_reasons(db: Database, query: Query) -> list[str]:
    return [
        f"{count} {'version' if count == 1 else 'versions'}: {wording.condition(condition)}"
        for condition, count in select.survivors(db, query, MOST)
    ]


def _nobody(_: Any) -> None:
    """Nobody listens."""


@dataclass(frozen=True)
class Asked:
    """How statements are to be run, besides what they say."""

    parameters: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False  # a network that fails its check ends the statement
    force: bool = False  # `define` may put another query in the place of one
    dry_run: bool = False  # nothing is committed or saved
    explain: bool = False  # queries are explained instead of answered
    author: str | None = None
    cache_folder: Path | None = None  # for the parser's tables
    directory: Path | None = None  # in which files are named; None: the current one
    trust: bool = False  # code that came with a version may run
    retry_failed: bool = False
    fresh: bool = False  # trials of the very query are dropped first
    keep_checkpoints: bool = False  # also of trials that were stopped
    snapshots: str = "last"  # of trials that become versions: the last checkpoint, or "all"
    jobs: int = 1
    say: Callable[[str], None] = _nobody
    progress: Callable[[Progress], None] = _nobody
    agree: Callable[[str], None] = _nobody  # raises where the user does not


def run(repository: Repository, text: str, asked: Asked | None = None) -> Iterator[Outcome]:
    """The outcomes in order; rows are read as they are asked for, and before the next one."""
    asked = asked or Asked()
    for statement in parser.parse(text, asked.cache_folder):
        if asked.explain and isinstance(statement, ast.Query):
            statement = ast.Explain(statement, False, span=statement.span)
        outcome = _statement(repository, text, statement, asked)
        yield outcome
        if isinstance(outcome, Table) and isinstance(outcome.rows, Held):
            outcome.rows.close()


def _statement(
    repository: Repository, text: str, statement: ast.Statement, asked: Asked
) -> Outcome:
    if isinstance(statement, ast.Define):
        query = text[statement.query.span.start : statement.query.span.end]
        _bound(repository, text, statement.query, asked, defining=statement.name)
        if asked.dry_run or asked.explain:
            return Defined(statement.name, query)
        return saving.save(
            repository, statement.name, query, force=asked.force, author=asked.author
        )
    analyze = isinstance(statement, ast.Explain) and statement.analyze
    query_tree = statement.query if isinstance(statement, ast.Explain) else statement
    bound, rules = rewriting.rewrite(_bound(repository, text, query_tree, asked))
    told = text[query_tree.span.start : query_tree.span.end]
    plain = question(text, query_tree)
    run = _Run(repository, text if bound.evaluation is None else told, plain, bound, asked)
    if asked.explain or isinstance(statement, ast.Explain):
        return run.explained(rules, analyze=analyze)
    return run.outcome()


def _bound(
    repository: Repository,
    text: str,
    query: ast.Query,
    asked: Asked,
    *,
    defining: str | None = None,
) -> Bound:
    known = KnownNames(repository.database)
    parse = partial(parser.parse, cache_folder=asked.cache_folder)
    here = asked.directory or Path.cwd()

    def config_file(where: str) -> ConfigFile:
        import dlv.dql.bind.configurations as configurations

        return configurations.read_file(repository, here, where)

    return names.resolve(
        *(text, query, known, asked.parameters),
        defining=defining,
        parse=parse,
        config_file=config_file,
    )


class _Run:
    """One statement at work: its networks are derived first, and then asked for like versions."""

    def __init__(
        self, repository: Repository, text: str, question: str, bound: Bound, asked: Asked
    ) -> None:
        self.repository = repository
        self.text = text
        self.question = question
        self.bound = bound
        self.asked = asked
        self.points = Points(repository)
        self.batches: list[int] = []
        self.made: list[tuple[Networks, dict[str, Origin]]] = []  # and the origin of each version

    def outcome(self) -> Outcome:
        with ExitStack() as moment:
            moment.enter_context(self.repository.database.snapshot())
            for work in self.bound.derivations:
                self._derive(work)
            trained = None
            if self.bound.evaluation is not None:
                trained = self._evaluating(self.bound.evaluation)
            if self.bound.query is not None:
                return self._table(self._placed(self.bound.query), moment.pop_all())
        if trained is not None:
            return self._trials(trained)
        made = self.made[-1][0]
        made = replace(made, warnings=(*self.bound.warnings, *made.warnings))
        if made.into is None or self.asked.dry_run:
            return made
        import dlv.dql.derive.committing as committing

        return committing.commit(
            self.repository,
            *(made, self.text),
            author=self.asked.author,
            parameters=self.asked.parameters,
        )

    def _trials(self, work: Evaluating) -> Trials:
        with closing(work):
            found = work.planned() if self.asked.dry_run else work.trials()
        return replace(found, warnings=[*self.bound.warnings, *self._told(), *found.warnings])

    def _evaluating(self, work: Evaluation) -> Evaluating:
        """Which networks, and what queries say is varied; nothing of it is looked at later."""
        import dlv.dql.trials.variations as variations
        import dlv.weights.store as weights

        db = self.repository.database
        cells = self._cells(work.source)
        store = weights.MatrixStore.of(self.repository)
        found = [each for cell in cells for each in self._candidate(store, cell)]
        rows = {}
        for place, varied in enumerate(work.varied):
            if isinstance(varied.domain, Rows):
                _, given = select.run(db, self._placed(varied.domain.query), at=self.points.at)
                rows[place] = variations.values_of(varied, given)
        query: dict[str, Any] = {"query": self.text}
        if self.asked.parameters:
            query["parameters"] = dict(self.asked.parameters)
        try:
            dumps(query)
        except (TypeError, ValueError) as error:
            raise UsageError(
                "the parameters cannot be kept with the trials", why=f"as JSON: {error}"
            ) from error
        import dlv.dql.trials.evaluating as evaluating

        names = (
            *("trust", "retry_failed", "fresh", "keep_checkpoints", "snapshots"),
            *("author", "jobs"),
            *("say", "progress", "agree"),
        )
        how = evaluating.How(
            directory=(self.asked.directory or Path.cwd()).resolve(),
            **{name: getattr(self.asked, name) for name in names},
        )
        return evaluating.Evaluating(
            *(self.repository, store, work, found, rows, query, self.question, how)
        )

    def _candidate(self, store: weights.MatrixStore, cell: VersionCell) -> list[Candidate]:
        import dlv.dql.trials.candidates as candidates

        db = self.repository.database
        if cell.derived is None:
            version = versions.by_id(db, cell.id)
            found = candidates.of_version(self.repository, store, version) if version else None
            return [] if found is None else [found]
        _, model, origin = self._of(cell)
        version = versions.by_id(db, model.source_id)
        if version is None:
            return []
        return [candidates.of_model(self.repository, store, model, origin, version)]

    def _cells(self, source: Query) -> list[VersionCell]:
        _, rows = select.run(self.repository.database, self._placed(source), at=self.points.at)
        return list(dict.fromkeys(row[0] for row in rows))

    def _table(self, query: Query, moment: ExitStack) -> Table:
        db = self.repository.database
        try:
            columns, rows = select.run(db, query, at=self.points.at)
        except BaseException:
            moment.close()
            raise

        def why() -> Sequence[str]:

            return survivor_reasons(db, query) if not self.batches else ()

        warnings = [*self.bound.warnings, *self._told()]
        return Table(columns, Held(rows, moment), warnings, why, self._model)

    def _derive(self, work: Derivation) -> Networks:
        import dlv.dql.derive.deriving as deriving

        found = self._origins(work)
        made = deriving.derive(work, found, strict=self.asked.strict)
        self.made.append((made, {origin.version: origin for origin in found}))
        last = work is self.bound.derivations[-1] and self.bound.evaluation is None
        if not last or self.bound.query is not None:
            networks = [
                derived.DerivedNetwork(
                    model.source_id, model.network, weights.node_figures(model.network)
                )
                for model in made.models
            ]
            self.batches.append(derived.insert_derived(self.repository.database, networks))
        return made

    def _origins(self, work: Derivation) -> list[Origin]:
        import dlv.weights.store as weights

        cells = self._cells(work.source)
        store = weights.MatrixStore.of(self.repository)
        try:
            found = [
                self._stored(store, cell) if cell.derived is None else self._derived(cell)
                for cell in cells
            ]
        finally:
            store.close()
        return [origin for origin in found if origin is not None]

    def _stored(self, store: weights.MatrixStore, cell: VersionCell) -> Origin | None:
        import dlv.dql.derive.origins as origins

        version = versions.by_id(self.repository.database, cell.id)
        return None if version is None else origins.of_version(self.repository, store, version)

    def _placed(self, query: Query) -> Query:
        """The query with the batches in which derived networks lie now."""

        def change(part: object) -> object:
            return (
                replace(part, batch=self.batches[part.batch]) if isinstance(part, Derived) else part
            )

        return changed(query, change)

    def _of(self, cell: VersionCell) -> tuple[Networks, Model, Origin]:
        assert cell.derived is not None
        batch, place = cell.derived
        made, by_version = self.made[self.batches.index(batch)]
        model = made.models[place]
        return made, model, by_version[model.source_id]

    def _model(self, cell: VersionCell) -> Model:
        return self._of(cell)[1]

    def _derived(self, cell: VersionCell) -> Origin:
        import dlv.dql.derive.deriving as deriving

        return deriving.onward(*self._of(cell))

    def _told(self) -> list[str]:
        """What is worth knowing of networks that were derived only to be asked for."""
        return [
            line
            for made, _ in self.made
            for line in (
                *made.warnings,
                *(f"{each.origin}: {each.reason}" for each in made.dropped),
            )
        ]

    def explained(self, rules: Sequence[str], *, analyze: bool) -> Explained:
        with self.repository.database.snapshot():
            if self.bound.evaluation is not None:
                for work in self.bound.derivations:
                    self._derive(work)
                with closing(self._evaluating(self.bound.evaluation)) as trained:
                    found = trained.explained()
                return replace(found, warnings=[*self.bound.warnings, *found.warnings])
            import dlv.dql.planning as planning

            return planning.explain(
                self.repository.database,
                *(self.bound, rules, self._placed, self._derive if analyze else self._pretend),
                analyze=analyze,
                at=self.points.at,
            )

    def _pretend(self, _: Derivation) -> None:
        self.batches.append(derived.insert_derived(self.repository.database, []))


class Held:
    """Rows, all of the moment that is held until they are read or closed."""

    def __init__(self, rows: Iterator[Row], moment: ExitStack) -> None:
        self._rows = rows
        self._moment = moment

    def __iter__(self) -> Held:
        return self

    def __next__(self) -> Row:
        try:
            return next(self._rows)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if isinstance(self._rows, Generator):
            self._rows.close()
        self._moment.close()
