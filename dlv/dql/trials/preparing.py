"""Trials before they start: the networks, weights, data and configurations that `evaluate` uses."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import dlv.disk.durable as durable
import dlv.network.edits.reuse as reuse
import dlv.versions.copying as copying
from dlv.adapters.checkpoint import Tensor
from dlv.adapters.data.columns import PREFIX
from dlv.adapters.data.sets import UNVERIFIED, fingerprint, fingerprint_of, open_parts
from dlv.canonical import dumps
from dlv.dataclass import dataclass
from dlv.dql.bind.bound import Automatic, Evaluation, Rows, Varied
from dlv.dql.bind.configurations import looked_up, versioned_entry
from dlv.dql.deriving import Origin
from dlv.dql.outcome import Model
from dlv.dtypes import ITEM_BYTES
from dlv.errors import NotFound, StorageError, UnsafeInput, UsageError, nearest
from dlv.metadata.versions import Version
from dlv.network.edits.reuse import Plan
from dlv.network.edits.wiring import Edit
from dlv.network.graph import Network
from dlv.network.verify import verify
from dlv.objects.manifest import Manifest
from dlv.repository.git_files import FileStore
from dlv.repository.handle import Repository
from dlv.training import checkpoints, fitting
from dlv.training import config as configs
from dlv.training.config import TRAINER, Config, Setting, trial_id
from dlv.training.ledger import sampling
from dlv.training.ledger.ledger import Ledger, NewTrial
from dlv.training.ledger.results import RunView, TrialView
from dlv.training.ledger.sampling import Suggesting, TriedPoint
from dlv.training.ledger.space import (
    Choices,
    Dimension,
    Domain,
    Key,
    Lookup,
    Point,
    Row,
    Space,
    Uniform,
    Whole,
    named,
)
from dlv.training.trainers import contract
from dlv.training.trainers.rows import CACHE, Fingerprints, inputs_of, wanted_of
from dlv.training.trial_files import EXTRACTED, TrialFiles, Weights, start_hash
from dlv.versions.copying import Held
from dlv.weights.store import MatrixStore

SCRATCH = "scratch"
MOST_TOLD = 60  # characters of what was done to a network


@dataclass(frozen=True)
class Candidate:
    """A network, the version that its weights come from, and what becomes of them in it.

    `origins`: labels of the versions that it was made of; `plan`: None where nothing was changed.
    """

    network: Network
    origins: tuple[str, ...]
    source: Version
    manifest: Manifest
    held: Held
    edits: tuple[Edit, ...] = ()
    plan: Plan | None = None
    constants: Mapping[str, Tensor] = field(default_factory=dict)
    _hashes: dict[tuple[bool, int], str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def label(self) -> str:
        """For people: whose network it is, and what was done to it."""
        told = "; ".join(edit.text or f"{edit.action} {edit.node}" for edit in self.edits)
        told = told if len(told) <= MOST_TOLD else f"{told[: MOST_TOLD - 3]}..."
        return " and ".join(self.origins) + (f": {told}" if told else "")

    def start(self, config: Config) -> list[Tensor]:
        """The tensors that a trial begins with; each is made when it is read."""
        plan = self.plan_of(config)
        if plan is None:
            return list(self.held.tensors)
        return self.held.carried(plan, config.seed)

    def plan_of(self, config: Config) -> Plan | None:
        """How they are made; None: they are those of the version."""
        if config["init"] == SCRATCH:
            return self._fresh
        if not self.held.tensors:
            return self._fresh
        return self.plan

    def start_hash(self, config: Config) -> str:
        plan = self.plan_of(config)
        made = plan is not None and plan.share < 1
        key = (config["init"] == SCRATCH, config.seed if made else 0)
        if key not in self._hashes:
            weights: Mapping[str, Weights] = {each.name: each for each in self.start(config)}
            self._hashes[key] = start_hash(weights)
        return self._hashes[key]

    @property
    def _fresh(self) -> Plan:
        """All tensors new: of the shapes that the network says, of the dtypes that it had."""
        shapes = self.held.shapes
        dtypes = {name: dtype for name, (dtype, _) in shapes.items()}
        return reuse.plan(self.network, self.network, {}, tied=self.held.tied, dtypes=dtypes)


def of_version(repository: Repository, store: MatrixStore, version: Version) -> Candidate | None:
    """None if the version has no network."""
    manifest = repository.manifest(version.id)
    if manifest.network is None:
        return None
    held = copying.held_by(manifest, version.label, store)
    problems = verify(held.network, held.shapes or None)
    faults = [problem for problem in problems if problem.severity == "error"]
    if faults:
        raise UsageError(
            f"the network of {version.label} cannot be trained: {faults[0]}",
            why="; ".join(map(str, faults[1:3])) or None,
            hint=f"dlv desc {version.label} --layers",
        )
    return Candidate(
        *(held.network, (version.label,), version, manifest, held),
        constants=_constants(manifest, store, held.network),
    )


def of_model(
    repository: Repository, store: MatrixStore, model: Model, origin: Origin, version: Version
) -> Candidate:
    """A derived network; `origin`: the version that it was derived from in the end."""
    manifest = repository.manifest(version.id)
    held = copying.held_by(manifest, version.label, store)
    plan = model.reuse
    if plan is None and held.tensors:
        plan = origin.plan(model.network)
    return Candidate(
        *(model.network, model.origins, version, manifest, held),
        edits=model.edits,
        plan=plan,
        constants=_constants(manifest, store, model.network),
    )


def _constants(manifest: Manifest, store: MatrixStore, network: Network) -> dict[str, Tensor]:
    assert manifest.network is not None
    found = {}
    for told in manifest.network.constants:
        name, shape = str(told["name"]), tuple(told["shape"])
        if name in network.constants:
            size = ITEM_BYTES.get(str(told["dtype"]), 1)
            for axis in shape:
                size *= axis
            read = partial(store.matrix, str(told["hash"]))
            found[name] = Tensor(name, str(told["dtype"]), shape, size, read)
    return found


def merged(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Equal networks with equal weights once, all origins told."""
    found: dict[tuple[str, str], Candidate] = {}
    for each in candidates:
        found.setdefault((each.network.id, each.source.id), each)
    return list(found.values())


FETCH = {
    "s3": "aws s3 cp {} .",
    "gs": "gcloud storage cp {} .",
    **dict.fromkeys(("http", "https"), "curl -LO {}"),
}


@dataclass(frozen=True)
class DataSet:
    """`path` is what a worker opens."""

    where: str
    path: str
    fingerprint: str

    @property
    def verified(self) -> bool:
        """Whether the fingerprint is of the content; else only the code knows what comes."""
        return not self.fingerprint.startswith(UNVERIFIED)


class DataSets:
    """What configurations of one query name, each looked for once."""

    def __init__(self, repository: Repository, directory: Path, beside: Path | None = None) -> None:
        self._repository = repository
        self._places = [directory, *([beside] if beside is not None else [])]
        self._prints = Fingerprints(repository.cache / CACHE, fingerprint)
        self._found: dict[str, DataSet] = {}
        self._opened: set[bytes] = set()

    def of(self, where: str) -> DataSet:
        """NotFound if it is not there: a path from the working directory, or from beside the
        configuration file; REF:FILE; python:module:function."""
        if where not in self._found:
            self._found[where] = self._look(where)
        return self._found[where]

    def check(self, data: DataSet, network: Network, called: str, config: Config) -> None:
        """Whether the trainer torch can learn from it, as far as that is told without reading it
        all. Trainers of the user's own may read what they like."""
        if config.trainer != TRAINER or data.where.startswith(PREFIX):
            return
        asked = [data.where, network.id, config["data"], config["loss"], config["val"]]
        if (key := dumps(asked)) in self._opened:
            return
        self._opened.add(key)
        source = open_parts(
            data.path,
            config["data"],
            wanted_of(inputs_of(network)),
            self._places[0],
            digest=lambda _: data.fingerprint,
        )
        fitting.check_fit(source, network, called, config)

    def _look(self, where: str) -> DataSet:
        if where.startswith(PREFIX):
            return DataSet(where, where, fingerprint_of(where, self._places[0]))
        if "://" in where:
            raise UsageError(
                f"{where} cannot be read",
                why="trainers read files, folders and what python:module:function gives",
                hint=_fetched(where),
            )
        for folder in self._places:
            path = folder / where
            if path.exists():
                path = path.resolve()
                return DataSet(where, str(path), self._prints(path))
        if ":" in where:
            found = self._stored(where)
            if found is not None:
                return found
        beside = (self._places[0] / where).parent
        names = [each.name for each in beside.iterdir()] if beside.is_dir() else []
        shown = where[: len(where) - len(PurePosixPath(where).name)]
        raise NotFound(
            f"no such data: {where}",
            why=f"looked in {' and '.join(dict.fromkeys(map(str, self._places)))}",
            did_you_mean=[shown + name for name in nearest(PurePosixPath(where).name, names)],
        )

    def _stored(self, where: str) -> DataSet | None:
        """An associated file of a version, taken out of the repository."""
        entry = versioned_entry(self._repository, where)
        if entry is None:
            return None
        folder = durable.make_directory(self._repository.trials_folder / EXTRACTED)
        path = folder / f"{entry.blake3}{PurePosixPath(entry.path).suffix}"
        if not path.is_file() or path.stat().st_size != entry.bytes:
            content = FileStore(self._repository.files_git).read(entry)
            durable.replace(path, content, tmp_dir=self._repository.tmp)
        else:
            os.utime(path)  # gc sees that it is wanted
        return DataSet(where, str(path), entry.blake3)


def _fetched(where: str) -> str:
    """What to type where data lies on another machine."""
    scheme, _, rest = where.partition("://")
    command = FETCH.get(scheme.lower(), "copy it to this machine").format(where)
    name = rest.rstrip("/").rpartition("/")[2] or "rows.npz"
    return f'{command}, and then config.input_data = "{name}"; or python:module:function reads it'


# The configurations of each network: what is varied, in a fixed order, as settings

BASE_RATE: Key = ("base_lr",)


@dataclass(frozen=True)
class Variation:
    """A configuration of one network. `varied`: what is not as in the file, as it is written."""

    point: Point
    config: Config
    varied: Mapping[str, Any]


def said(key: Key) -> str:
    """A key as it stands in a query, without `config.` in front."""
    if key[0] == "net" and len(key) == 3:
        return f'net["{key[1]}"].{key[2]}'
    return ".".join(key)


def space(work: Evaluation, rows: Mapping[int, Sequence[Row]], network: Network) -> Space:
    """What is varied for a network; `rows`: what queries gave, by the place of their dimension."""
    base = _base(work)
    dimensions: list[Dimension] = []
    for place, varied in enumerate(work.varied):
        dimensions += _dimensions(varied, rows.get(place, ()), network)
    return Space(tuple(dimensions), base)


def _base(work: Evaluation) -> Lookup:
    def value(key: Key) -> Any:
        for name, value in reversed(work.settings):
            if name == key:
                return value
        return looked_up(work.config.table, key)

    return value


def _dimensions(varied: Varied, rows: Sequence[Row], network: Network) -> Iterable[Dimension]:
    when = None if varied.when is None else varied.applies
    asked = varied.reads
    domain = varied.domain
    if not isinstance(domain, Automatic):
        values = Choices(_different(rows)) if isinstance(domain, Rows) else domain
        yield Dimension(varied.keys, values, when, asked)
        return
    (key,) = varied.keys
    usual = _usual(key, domain.levels)
    if key[0] == "net" and key[2] == "lr":
        values = Choices(usual.rows, BASE_RATE)
        asked |= {BASE_RATE}
    else:
        values = usual
    if not domain.per_node:
        yield Dimension(varied.keys, values, when, asked)
        return
    for name in configs.matching(key[1], key[2], network):
        yield Dimension((("net", literal(name), key[2]),), values, when, asked)


def _usual(key: Key, levels: int | None) -> Choices:
    """The values of `auto`, or as many of them as are asked for, from one end to the other."""
    values = configs.auto(key) or ()
    count = len(values) if levels is None else levels
    if count == 1:
        places = [len(values) // 2]
    else:
        places = [round(at * (len(values) - 1) / (count - 1)) for at in range(count)]
    return Choices(tuple((values[place],) for place in places))


def _different(rows: Sequence[Row]) -> tuple[Row, ...]:
    return tuple({named((row,)): row for row in rows}.values())


def literal(name: str) -> str:
    """The selector that fits just this name."""
    return re.sub(r"([\\*?\[\]()])", r"\\\1", name)


def values_of(varied: Varied, rows: Iterable[Sequence[Any]]) -> list[Row]:
    """The rows of a query as values that the keys may have; null is none."""
    domain = varied.domain
    assert isinstance(domain, Rows)
    made: list[Row] = []
    for row in rows:
        if any(value is None for value in row):
            continue
        values = []
        for key, value in zip(varied.keys, row, strict=True):
            known = configs.field_of(key)
            try:
                values.append(value if known is None else known.read(said(key), value))
            except UsageError as error:
                error.why = f"{error.why}; the query ({domain.text}) gave it"
                raise
        made.append(tuple(values))
    if not made:
        raise UsageError(
            f"no value to try for config.{said(varied.keys[0])}", why=f"({domain.text}) gives none"
        )
    return made


def resolved(work: Evaluation, network: Network, space: Space, point: Point) -> Variation:
    """The configuration of a point; UsageError says of which."""
    settings = space.settings(point)
    given = [Setting(key, value) for key, value in (*work.settings, *settings)]
    try:
        config = configs.resolve(work.config.table, given, network)
    except UsageError as error:
        varied = ", ".join(f"{said(key)} = {value}" for key, value in settings)
        if varied and error.why is None:
            error.why = f"with {varied}"
        elif varied:
            error.why = f"{error.why}; with {varied}"
        raise
    return Variation(point, config, {said(key): value for key, value in settings})


def described(varied: Varied, space: Space | None = None) -> tuple[str, int | None]:
    """A dimension in words, and how many values it has, as far as that is known."""
    domain: Domain | Rows | Automatic = varied.domain
    if isinstance(domain, Automatic):
        key = varied.keys[0]
        return varied.text, None if domain.per_node else len(_usual(key, domain.levels).rows)
    if isinstance(domain, Choices):
        return varied.text, len(domain.rows)
    if isinstance(domain, Whole):
        return varied.text, domain.high - domain.low + 1
    if isinstance(domain, Uniform) or space is None:
        return varied.text, None
    return varied.text, next(
        (each.count for each in space.dimensions if each.keys == varied.keys), None
    )


# Trials prepared

MOST_WITHOUT_BUDGET = 1_000
MOST = 20_000
CODE = "python:"


@dataclass(frozen=True)
class Planned:
    """A trial to be. `unverified`: what its data holds is known to code alone."""

    id: str
    ordinal: int
    candidate: Candidate
    variation: Variation
    data: DataSet | None

    @property
    def config(self) -> Config:
        return self.variation.config

    @property
    def label(self) -> str:
        return self.candidate.label

    def new(self) -> NewTrial:
        return NewTrial(
            id=self.id,
            ordinal=self.ordinal,
            network=self.candidate.network.id,
            config=dumps(self.config.document()).decode(),
            seed=self.config.seed,
            label=self.label,
            varied=self.variation.varied,
        )


@dataclass
class Preparing:
    """The networks of one query, and what becomes of points of their spaces."""

    repository: Repository
    work: Evaluation
    candidates: Sequence[Candidate]
    rows: Mapping[int, Sequence[Row]]
    directory: Path
    sets: DataSets
    trust: bool = False
    keep_all: bool = False  # checkpoints, not only the last ones
    record: Mapping[str, Any] = field(default_factory=dict)
    spaces: list[Space] = field(default_factory=list)
    _versions: dict[str, str] = field(default_factory=dict)
    _seen: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.spaces = [space(self.work, self.rows, each.network) for each in self.candidates]

    def count(self) -> int | None:
        """Configurations of all networks, before equal ones are merged."""
        wanted = self.work.sampling.n
        found = 0
        for each in self.spaces:
            points = each.count
            if points is None and wanted is None:
                return None
            found += min(count for count in (points, wanted) if count is not None)
        return found

    def check_count(self) -> None:
        """Too many trials are refused before the first of them is made."""
        count = self.count() or 0
        # What is absent under a condition makes equal points; a grid that is small is looked at.
        if self.work.sampling.kind == "grid" and count <= 10 * MOST:
            count = sum(sum(1 for _ in each.grid()) for each in self.spaces)
        if count > MOST:
            raise UsageError(
                f"these would be {count:,} trials",
                why=f"at most {MOST:,} are prepared at once",
                hint="using random(200) tries some of them; fewer values or networks",
            )
        if count > MOST_WITHOUT_BUDGET and not self.work.budget:
            raise UnsafeInput(
                f"these would be {count:,} trials",
                why=f"more than {MOST_WITHOUT_BUDGET:,} need a budget",
                hint="budget(hours = 3), budget(trials = 200), or using random(200)",
            )

    def trial(self, place: int, point: Point) -> Planned:
        """The trial of a candidate at a point; equal ones have the same id and number."""
        candidate, made = self.candidates[place], self.spaces[place]
        variation = resolved(self.work, candidate.network, made, point)
        config = variation.config
        self._check_consent(variation)
        data = None
        if config.input_data is not None:
            data = self.sets.of(config.input_data)
            self.sets.check(data, candidate.network, f"the network {candidate.label}", config)
        name = trial_id(
            candidate.network.id,
            candidate.start_hash(config),
            config,
            self._prints(data),
            self._version(config),
        )
        ordinal = self._seen.setdefault(name, len(self._seen) + 1)
        return Planned(name, ordinal, candidate, variation, data)

    def _prints(self, data: DataSet | None) -> dict[str, str]:
        if data is None:
            return {}
        if data.verified:
            return {"input_data": data.fingerprint}
        # Nobody can say whether the code gives the same again: such a trial is of its query alone.
        return {"input_data": f"{data.where} of {self.record.get('asked', '')}"}

    def _version(self, config: Config) -> str:
        """What the trainer is; looked at once each, and refused if it is not there."""
        key = dumps({"trainer": config.trainer}).decode()
        if key not in self._versions:
            contract.check(config, self.directory)
            self._versions[key] = contract.version(config, self.directory)
        elif config.trainer == TRAINER and config.input_data is None:
            contract.check(config, self.directory)
        return self._versions[key]

    def _check_consent(self, variation: Variation) -> None:
        """Code that nobody here has named is not run."""
        file = self.work.config
        if self.trust or not file.stored:
            return
        own = {key for key, _ in self.work.settings} | {k for d in self.work.varied for k in d.keys}
        config = variation.config
        if config.trainer != TRAINER and ("trainer",) not in own:
            raise UnsafeInput(
                f"{file.where} names code to run: {config.trainer}",
                why="it came with a version, and code runs with all your rights",
                hint="if you trust it: dlv query --trust",
            )
        data = config.input_data
        if data is not None and data.startswith(CODE) and ("input_data",) not in own:
            raise UnsafeInput(
                f"{file.where} names code that makes the data: {data}",
                why="it came with a version, and code runs with all your rights",
                hint="if you trust it: dlv query --trust",
            )

    # What the workers find

    def write(self, trials: Sequence[Planned], done: Container[str] = ()) -> list[str]:
        """The folders of trials that have none yet, and what is damaged in others: their ids. gc
        sees that they are wanted. Of those that are `done` nothing is read."""
        folder = self.repository.trials_folder
        for each in trials:
            with suppress(OSError):
                os.utime(folder / each.id)
        files = {each.id: TrialFiles(folder / each.id) for each in trials}
        missing = [
            each
            for each in trials
            if not (files[each.id].exists() if each.id in done else files[each.id].whole())
        ]
        self._check_room(missing)
        for each in missing:
            start = {tensor.name: tensor for tensor in each.candidate.start(each.config)}
            TrialFiles(folder / each.id).create(
                each.candidate.network,
                each.config,
                start,
                self._record(each),
                constants=each.candidate.constants,
            )
        for each in trials if self.keep_all else ():
            checkpoints.keep_all(TrialFiles(folder / each.id).checkpoints)
        return [each.id for each in missing]

    def _check_room(self, trials: Sequence[Planned]) -> None:
        wanted = sum(
            tensor.nbytes * (each.config.steps // each.config.log_every if self.keep_all else 1)
            for each in trials
            for tensor in each.candidate.start(each.config)
        )
        free = shutil.disk_usage(self.repository.path).free
        # Two checkpoints with the state of the optimizer lie beside what a trial begins with.
        if wanted * 3 > free:
            raise StorageError(
                f"{len(trials):,} trials need about {wanted * 5 / 1e9:.1f} GB",
                why=f"{free / 1e9:.1f} GB are free",
                hint="fewer trials at once: using random(20), or one network after the other",
            )

    def _record(self, trial: Planned) -> dict[str, Any]:
        data = trial.data
        return {
            **self.record,
            "directory": str(self.directory),
            "source": trial.candidate.source.id,
            "origins": list(trial.candidate.origins),
            "paths": {} if data is None else {data.where: data.path},
            "fingerprints": {} if data is None else {"input_data": data.fingerprint},
        }


# Choosing trials: a whole grid, a random sample, or one batch after another as trials end


@dataclass
class Picking:
    """The trials so far, by id, in their order; equal ones once."""

    preparing: Preparing
    trials: dict[str, Planned] = field(default_factory=dict)
    points: list[list[tuple[Point, str]]] = field(default_factory=list)  # by candidate

    def __post_init__(self) -> None:
        self.points = [[] for _ in self.preparing.candidates]

    @property
    def growing(self) -> bool:
        return self.preparing.work.sampling.kind == "tpe"

    def first(self) -> list[Planned]:
        """Those that are known before anything was trained."""
        if self.growing:
            return self._suggested({})
        chosen = self.preparing.work.sampling
        found: list[Planned] = []
        for place, space in enumerate(self.preparing.spaces):
            points: Iterable[Point] = (
                space.grid()
                if chosen.kind == "grid"
                else sampling.drawn(space, chosen.n or 0, chosen.seed)
            )
            found += self._taken(place, points)
        return found

    def _taken(self, place: int, points: Iterable[Point]) -> list[Planned]:
        """The trials at these points that were not there before."""
        found = []
        for point in points:
            trial = self.preparing.trial(place, point)
            self.points[place].append((point, trial.id))
            if trial.id not in self.trials:
                self.trials[trial.id] = trial
                found.append(trial)
        return found

    def _suggested(self, views: Mapping[str, TrialView]) -> list[Planned]:
        """The next batch of each candidate."""
        chosen = self.preparing.work.sampling
        found: list[Planned] = []
        for place, space in enumerate(self.preparing.spaces):
            told = [
                TriedPoint(point, self._value(views[name])) for point, name in self.points[place]
            ]
            size = min(chosen.batch, (chosen.n or 0) - len(told))
            if size > 0:
                suggesting = Suggesting(space, chosen.direction or "min", chosen.seed)
                found += self._taken(place, suggesting.batch(told, size))
        return found

    def _value(self, view: TrialView) -> float | None:
        """What a trial came to when the rules first looked at it, however far it went later."""
        metric = self.preparing.work.sampling.metric or ""
        if view.state == "failed":
            return None
        value = view.cut.get(metric, view.last.get(metric))
        return value if value is not None and value - value == 0 else None

    def replay(self, view: RunView) -> None:
        """Batches that a run which goes on has had before."""
        if not self.growing:
            return
        while True:
            views = {trial.trial: trial for trial in view.trials}
            if not view.idle or not set(self.trials) <= set(views):
                return
            before = sum(map(len, self.points))
            fresh = self._suggested(views)
            if any(each.id not in views for each in fresh):
                self._untaken(fresh)
                return
            if sum(map(len, self.points)) == before:
                return

    def _untaken(self, fresh: Sequence[Planned]) -> None:
        names = {each.id for each in fresh}
        for asked in self.points:
            asked[:] = [(point, name) for point, name in asked if name not in names]
        for name in names:
            del self.trials[name]

    def more(
        self, ledger: Ledger, run: str, write: Callable[[Sequence[Planned]], object]
    ) -> Callable[[], None]:
        """What a driver calls when a growing run has nothing left to train."""

        def ask() -> None:
            views = {trial.trial: trial for trial in ledger.run(run).trials}
            before, fresh = -1, list[Planned]()
            while not fresh and before != (before := sum(map(len, self.points))):
                fresh = self._suggested(views)
            write(fresh)
            wanted = self.preparing.work.sampling.n or 0
            last = not fresh or all(len(asked) >= wanted for asked in self.points)
            ledger.add_trials(run, [each.new() for each in fresh], last=last)

        return ask
