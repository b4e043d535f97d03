"""From the text of a query to its results, one outcome per statement."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dlv.dql.bind.rewrite as rewriting
import dlv.dql.saved as saved
import dlv.dql.words.parser as parser
from dlv.canonical import dumps
from dlv.dql.bind.bound import (
    Bound,
    Change,
    Chosen,
    ConfigFile,
    Cut,
    Delete,
    Derivation,
    Evaluation,
    Insert,
    Making,
    Replace,
    Rows,
)
from dlv.dql.bind.queries import resolve
from dlv.dql.outcome import (
    Defined,
    Explained,
    Model,
    Networks,
    Outcome,
    QueryOptions,
    Table,
    Trials,
)
from dlv.dql.words import ast
from dlv.errors import UsageError
from dlv.metadata import metrics, versions
from dlv.metadata.database import Database
from dlv.metadata.networks import DerivedNetwork, insert_derived
from dlv.metadata.rows import Row, VersionCell
from dlv.metadata.select import statement as select
from dlv.metadata.select import wording
from dlv.metadata.select.relations import AnyNode, Derived, Query, map_tree
from dlv.metadata.usage import KnownNames
from dlv.repository.handle import Repository

if TYPE_CHECKING:
    import dlv.weights.store as weight_store
    from dlv.dql.deriving import Origin
    from dlv.dql.trials.evaluating import Evaluating
    from dlv.dql.trials.preparing import Candidate


Placed = Callable[[Query], Query]


_KEPT = 64  # series


class Points:
    """Asks for one point after the other; those of the series read last are at hand."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._store: weight_store.MatrixStore | None = None
        self._series = lru_cache(_KEPT)(self._read)

    def value_at(self, version: str, name: str, step: int) -> float | None:
        """The value at just this step, the last one if it was written twice."""
        return self._series(version, name).get(step)

    def _read(self, version: str, name: str) -> dict[int, float]:
        db = self._repository.database
        found = versions.by_id(db, version)
        summaries = [] if found is None else metrics.of_version(db, found.key)
        wanted = next((each for each in summaries if each.name == name), None)
        if wanted is None:
            return {}
        import dlv.weights.store as weight_store

        if self._store is None:
            self._store = weight_store.MatrixStore.of(self._repository)
        points = weight_store.stored_series(self._store, wanted.hash)
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


def run(
    repository: Repository, text: str, options: QueryOptions | None = None
) -> Iterator[Outcome]:
    """The outcomes in order; rows are read as they are asked for, and before the next one."""
    options = options or QueryOptions()
    for statement in parser.parse(text, options.cache_folder):
        if options.explain and isinstance(statement, ast.Query):
            statement = ast.Explain(statement, False, span=statement.span)
        outcome = _statement(repository, text, statement, options)
        yield outcome
        if isinstance(outcome, Table) and isinstance(outcome.rows, Held):
            outcome.rows.close()


def _statement(
    repository: Repository, text: str, statement: ast.Statement, options: QueryOptions
) -> Outcome:
    if isinstance(statement, ast.Define):
        query = text[statement.query.span.start : statement.query.span.end]
        _bound(repository, text, statement.query, options, defining=statement.name)
        if options.dry_run or options.explain:
            return Defined(statement.name, query)
        return saved.save_query(
            repository, statement.name, query, force=options.force, author=options.author
        )
    analyze = isinstance(statement, ast.Explain) and statement.analyze
    query_tree = statement.query if isinstance(statement, ast.Explain) else statement
    bound, rules = rewriting.rewrite(_bound(repository, text, query_tree, options))
    told = text[query_tree.span.start : query_tree.span.end]
    plain = question(text, query_tree)
    run = _Run(repository, text if bound.evaluation is None else told, plain, bound, options)
    if options.explain or isinstance(statement, ast.Explain):
        return run.explained(rules, analyze=analyze)
    return run.outcome()


def _bound(
    repository: Repository,
    text: str,
    query: ast.Query,
    options: QueryOptions,
    *,
    defining: str | None = None,
) -> Bound:
    known = KnownNames(repository.database)
    parse = partial(parser.parse, cache_folder=options.cache_folder)
    here = options.directory or Path.cwd()

    def config_file(where: str) -> ConfigFile:
        import dlv.dql.bind.configurations as configurations

        return configurations.read_file(repository, here, where)

    return resolve(
        *(text, query, known, options.parameters),
        defining=defining,
        parse=parse,
        config_file=config_file,
    )


class _Run:
    """One statement at work: its networks are derived first, and then asked for like versions."""

    def __init__(
        self, repository: Repository, text: str, question: str, bound: Bound, options: QueryOptions
    ) -> None:
        self.repository = repository
        self.text = text
        self.question = question
        self.bound = bound
        self.options = options
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
        if made.into is None or self.options.dry_run:
            return made
        import dlv.dql.committing as committing

        return committing.commit_networks(
            self.repository,
            *(made, self.text),
            author=self.options.author,
            parameters=self.options.parameters,
        )

    def _trials(self, work: Evaluating) -> Trials:
        with closing(work):
            found = work.planned() if self.options.dry_run else work.trials()
        return replace(found, warnings=[*self.bound.warnings, *self._told(), *found.warnings])

    def _evaluating(self, work: Evaluation) -> Evaluating:
        """Which networks, and what queries say is varied; nothing of it is looked at later."""
        import dlv.dql.trials.preparing as preparing
        import dlv.weights.store as weight_store

        db = self.repository.database
        cells = self._cells(work.source)
        store = weight_store.MatrixStore.of(self.repository)
        found = [each for cell in cells for each in self._candidate(store, cell)]
        rows = {}
        for place, varied in enumerate(work.varied):
            if isinstance(varied.domain, Rows):
                _, given = select.run(
                    db, self._placed(varied.domain.query), metric_at=self.points.value_at
                )
                rows[place] = preparing.values_of(varied, given)
        query: dict[str, Any] = {"query": self.text}
        if self.options.parameters:
            query["parameters"] = dict(self.options.parameters)
        try:
            dumps(query)
        except (TypeError, ValueError) as error:
            raise UsageError(
                "the parameters cannot be stored with the trials", why=f"as JSON: {error}"
            ) from error
        import dlv.dql.trials.evaluating as evaluating

        return evaluating.Evaluating(
            self.repository,
            store,
            work,
            candidates=found,
            rows=rows,
            query=query,
            question=self.question,
            how=self.options,
            directory=(self.options.directory or Path.cwd()).resolve(),
        )

    def _candidate(self, store: weight_store.MatrixStore, cell: VersionCell) -> list[Candidate]:
        import dlv.dql.trials.preparing as preparing

        db = self.repository.database
        if cell.derived is None:
            version = versions.by_id(db, cell.id)
            found = preparing.of_version(self.repository, store, version) if version else None
            return [] if found is None else [found]
        _, model, origin = self._of(cell)
        version = versions.by_id(db, model.source_id)
        if version is None:
            return []
        return [preparing.of_model(self.repository, store, model, origin, version)]

    def _cells(self, source: Query) -> list[VersionCell]:
        _, rows = select.run(
            self.repository.database, self._placed(source), metric_at=self.points.value_at
        )
        return list(dict.fromkeys(row[0] for row in rows))

    def _table(self, query: Query, moment: ExitStack) -> Table:
        db = self.repository.database
        try:
            columns, rows = select.run(db, query, metric_at=self.points.value_at)
        except BaseException:
            moment.close()
            raise

        def why() -> Sequence[str]:

            return survivor_reasons(db, query) if not self.batches else ()

        warnings = [*self.bound.warnings, *self._told()]
        return Table(columns, Held(rows, moment), warnings, why, self._model)

    def _derive(self, work: Derivation) -> Networks:
        import dlv.dql.deriving as deriving

        found = self._origins(work)
        made = deriving.derive(work, found, strict=self.options.strict)
        self.made.append((made, {origin.version: origin for origin in found}))
        last = work is self.bound.derivations[-1] and self.bound.evaluation is None
        if not last or self.bound.query is not None:
            import dlv.weights.store as weight_store

            derived = [
                DerivedNetwork(
                    model.source_id, model.network, weight_store.node_figures(model.network)
                )
                for model in made.models
            ]
            self.batches.append(insert_derived(self.repository.database, derived))
        return made

    def _origins(self, work: Derivation) -> list[Origin]:
        import dlv.weights.store as weight_store

        cells = self._cells(work.source)
        store = weight_store.MatrixStore.of(self.repository)
        try:
            found = [
                self._stored(store, cell) if cell.derived is None else self._derived(cell)
                for cell in cells
            ]
        finally:
            store.close()
        return [origin for origin in found if origin is not None]

    def _stored(self, store: weight_store.MatrixStore, cell: VersionCell) -> Origin | None:
        import dlv.dql.deriving as deriving

        version = versions.by_id(self.repository.database, cell.id)
        return None if version is None else deriving.of_version(self.repository, store, version)

    def _placed(self, query: Query) -> Query:
        """The query with the batches in which derived networks lie now."""

        def change(part: object) -> object:
            return (
                replace(part, batch=self.batches[part.batch]) if isinstance(part, Derived) else part
            )

        return map_tree(query, change)

    def _of(self, cell: VersionCell) -> tuple[Networks, Model, Origin]:
        assert cell.derived is not None
        batch, place = cell.derived
        made, by_version = self.made[self.batches.index(batch)]
        model = made.models[place]
        return made, model, by_version[model.source_id]

    def _model(self, cell: VersionCell) -> Model:
        return self._of(cell)[1]

    def _derived(self, cell: VersionCell) -> Origin:
        import dlv.dql.deriving as deriving

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

            return explain(
                self.repository.database,
                *(self.bound, rules, self._placed, self._derive if analyze else self._pretend),
                analyze=analyze,
                metric_at=self.points.value_at,
            )

    def _pretend(self, _: Derivation) -> None:
        self.batches.append(insert_derived(self.repository.database, []))


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


# What a statement would do, step by step: `explain`


def explain(
    db: Database,
    bound: Bound,
    rules: Sequence[str],
    placed: Placed,
    derive: Callable[[Derivation], Networks | None],
    *,
    analyze: bool,
    metric_at: select.PointReader,
) -> Explained:
    """The plans of all queries in the order in which they are asked, and what is derived.

    `derive` puts the networks where the queries after it look for them: none, unless `analyze`.
    """
    lines = [f"Rewritten  {', '.join(rules)}"] if rules else []
    steps: list[dict[str, Any]] = []
    details: list[str] = []
    for work in bound.derivations:
        plan = select.explain(db, placed(work.source), analyze=analyze, metric_at=metric_at)
        began = time.perf_counter()
        made = derive(work)
        document: dict[str, Any] = {"step": work.verb, "name": work.name, "source": plan.document()}
        title = f"{work.verb.capitalize()} {work.name} of {work.variable}"
        if made is not None:
            spent = (time.perf_counter() - began) * 1e3
            document |= {"networks": len(made.models), "ms": round(spent, 3)}
            title += f"  {len(made.models)} networks  {spent:.1f} ms"
        changes = _changes(work)
        document["changes"] = changes
        if work.into is not None:
            document["into"] = work.into
            changes = [*changes, f'into "{work.into}"']
        lines += [title, *(f"  {change}" for change in changes)]
        lines += [f"  {line}" for line in plan.lines()]
        details += plan.details()
        steps.append(document)
    if bound.query is not None:
        plan = select.explain(db, placed(bound.query), analyze=analyze, metric_at=metric_at)
        lines += plan.lines()
        details += plan.details()
        steps.append({"step": "select", "source": plan.document()})
    document = {"analyzed": analyze, "rules": list(rules), "steps": steps}
    return Explained(lines, document, bound.warnings, details)


def _changes(work: Derivation) -> list[str]:
    if isinstance(work.work, Cut):
        ends = (
            ", ".join(map(wording.nodes, each)) for each in (work.work.inputs, work.work.outputs)
        )
        return ["from {} to {}".format(*ends)]
    each = "each " if work.one_per_match else ""
    return [each + _change(change, work.chosen) for change in work.work]


def _change(change: Change, chosen: Sequence[Chosen]) -> str:
    only = [
        wording.condition(AnyNode(one.nodes, one.test))
        for one in chosen
        if one.nodes.start == change.nodes.start
        and one.nodes.steps[: len(change.nodes.steps)] == change.nodes.steps
    ]
    found = wording.nodes(change.nodes) + (f" where {' and '.join(only)}" if only else "")
    if isinstance(change, Insert):
        place = "before" if change.before else "behind"
        edge = change.source if change.before else change.to
        on = "" if edge is None else f", on the edge {'from' if change.before else 'to'} "
        on += "" if edge is None else wording.nodes(edge)
        return f"insert {_makings(change.makings)} {place} {found}{on}"
    if isinstance(change, Replace):
        return f"replace {found} by {_makings(change.makings)}"
    if isinstance(change, Delete):
        to = "" if change.to is None else f"the edge to {wording.nodes(change.to)} of "
        return f"delete {to}{found}"
    values = ", ".join(map(str, change.values))
    return f"set {found}.{change.attribute} = {values}"


def _makings(makings: tuple[Making, ...]) -> str:
    return ", ".join(making.op if making.name is None else making.name for making in makings)
