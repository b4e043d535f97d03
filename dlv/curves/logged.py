"""Curves in a program or a notebook: of versions, or of a folder of event files."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack

import dlv.curves.frozen as frozen_curves
import dlv.curves.ingest as ingest
from dlv.curves.restart_views import under
from dlv.curves.store import LIVE, CurveStore, curves_of
from dlv.errors import NotFound, UsageError, nearest, require
from dlv.events.provider.provider import Provider, Where
from dlv.events.provider.sampling import Choice, Sampling, Steps
from dlv.events.provider.store import Blobs, ByRun, ChosenRuns, Points, Store, Tensor
from dlv.metadata.versions import Version
from dlv.repository.handle import Repository
from dlv.shown import Shown

COLUMNS = ("run", "tag", "step", "wall_time", "value")


class Asked(TypedDict, total=False):
    """What every read takes: `steps` (first, last), both included or None; `last`, how many of the
    greatest steps; `points`, how many at most, chosen as `sampling` says. None is all."""

    runs: Collection[str] | None
    points: int | None
    steps: Steps | None
    last: int | None
    sampling: Sampling


class BlobSequence(Sequence[bytes]):
    """What was logged at one step; the bytes are read when they are asked for."""

    def __init__(self, provider: Provider, reader: Blobs) -> None:
        self._provider = provider
        self._blobs = reader.blobs
        self.step = reader.step
        self.wall = reader.wall

    def __len__(self) -> int:
        return len(self._blobs)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._read(blob.key) for blob in self._blobs[index]]
        return self._read(self._blobs[index].key)

    def _read(self, key: str | None) -> bytes:
        return self._provider.read_blob(key or "")

    def __repr__(self) -> str:
        return f"<dlv blobs: {len(self)} at step {self.step}>"


class Curves(Shown):
    """Series by run and tag. A version is the run `lenet@3`, what it logged below it others.

    `remarks`: (series or file, why missing or cut off).
    """

    def __init__(
        self,
        provider: Provider,
        experiment: str = "",
        remarks: Sequence[tuple[str, str]] = (),
        *,
        close: Callable[[], object] = bool,
    ) -> None:
        self.provider = provider  # the whole generic API
        self.experiment = experiment
        self.remarks = list(remarks)
        self._close = weakref.finalize(self, close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._close()

    def __repr__(self) -> str:
        return f"<dlv curves of {len(self.runs)} runs>"

    def __getitem__(self, tag: str) -> dict[str, Points]:
        """The scalars of a metric, by run: `curves["loss"]["lenet@3"].values`."""
        return {run: by_tag[tag] for run, by_tag in self.scalars(tag).items() if tag in by_tag}

    def _ipython_key_completions_(self) -> list[str]:
        return self.tags()

    @property
    def runs(self) -> list[str]:
        return [run.name for run in self.provider.runs(self.experiment)]

    @property
    def plugins(self) -> list[str]:
        """What kinds of series there are: scalars, histograms, images and so on."""
        return self.provider.plugins(self.experiment)

    def tags(self, plugin: str = "scalars") -> list[str]:
        found = self.provider.series(plugin, experiment=self.experiment)
        return sorted({tag for by_tag in found.values() for tag in by_tag})

    @property
    def hyperparameters(self) -> dict[str, dict[str, Any]]:
        """Of the runs that have some."""
        groups = self.provider.read_hyperparameters(self.experiment)
        found = {run: dict(group.values) for group in groups for run in group.runs}
        return dict(sorted(found.items()))

    def scalars(self, *tags: str, **asked: Unpack[Asked]) -> ByRun[Points]:
        """run -> tag -> points: numpy arrays `steps`, `walls` and `values`, by step."""
        choice, where = self._question("scalars", tags, asked)
        return self.provider.read_scalars(choice=choice, **where)

    def to_pandas(self, *tags: str, **asked: Unpack[Asked]) -> Any:
        """A DataFrame with a row for each point of scalars."""
        try:
            pandas = require("pandas", "pandas")
        except UsageError as error:
            error.hint = "pip install pandas"
            raise
        frames = [
            pandas.DataFrame(
                dict(zip(COLUMNS, (run, tag, p.steps, p.walls, p.values), strict=True))
            )
            for run, by_tag in self.scalars(*tags, **asked).items()
            for tag, p in by_tag.items()
            if len(p)
        ]
        if not frames:
            return pandas.DataFrame(columns=COLUMNS)
        return pandas.concat(frames, ignore_index=True)

    def tensors(
        self, *tags: str, plugin: str = "histograms", **asked: Unpack[Asked]
    ) -> ByRun[list[Tensor]]:
        """run -> tag -> tensors, each with `step`, `wall` and `array`.

        A histogram is an array with a row (left, right, count) for each bucket.
        """
        choice, where = self._question(plugin, tags, asked)
        return self.provider.read_tensors(plugin, choice, **where)

    def blobs(
        self, *tags: str, plugin: str = "images", **asked: Unpack[Asked]
    ) -> ByRun[list[BlobSequence]]:
        """run -> tag -> sequences of bytes. Of images, the first two are width and height."""
        choice, where = self._question(plugin, tags, asked)
        found = self.provider.read_blob_sequences(plugin, choice, **where)
        return {
            run: {
                tag: [BlobSequence(self.provider, each) for each in sequences]
                for tag, sequences in by_tag.items()
            }
            for run, by_tag in found.items()
        }

    def _question(self, plugin: str, tags: Sequence[str], request: Asked) -> tuple[Choice, Where]:
        """Names that nobody knows are mistakes here; a provider would leave them out."""
        runs = request.get("runs")
        for names, known, what in ((tags, self.tags(plugin), "series"), (runs, self.runs, "run")):
            for name in names or ():
                if name not in known:
                    raise NotFound(f"no {what} `{name}`", did_you_mean=nearest(name, known))
        choice = Choice(
            points=request.get("points"),
            steps=request.get("steps"),
            last=request.get("last"),
            sampling=request.get("sampling", "sampled"),
        )
        where: Where = {"experiment": self.experiment, "runs": runs, "tags": tags or None}
        return choice, where


def of_versions(
    repository: Repository, wanted: Sequence[Version], *, cap: int, restarts: str | None = None
) -> Curves:
    """The curves that were committed with versions."""
    store, stack = _opened(repository)
    try:
        remarks = frozen_curves.fill(repository, store, wanted)
    except BaseException:
        stack.close()
        raise
    labels = [version.label for version in wanted]
    shown: Store = ChosenRuns(under(store, restarts), lambda: labels)
    provider = Provider(shown, cap=cap)
    return Curves(provider, frozen_curves.REPOSITORY, remarks, close=stack.close)


def of_folder(
    repository: Repository, folder: Path, *, cap: int, restarts: str | None = None
) -> Curves:
    """What the event files below a folder hold now; what was read before is not read again."""
    store, stack = _opened(repository)
    try:
        experiment = ingest.text_of(folder.resolve())
        remarks = ingest.scan(store, folder, experiment=experiment).remarks
    except BaseException:
        stack.close()
        raise
    provider = Provider(under(store, restarts), cap=cap)
    return Curves(provider, experiment, remarks, close=stack.close)


def _opened(repository: Repository) -> tuple[CurveStore, ExitStack]:
    """The store of a repository, or one of its own where nothing can be written there."""
    stack = ExitStack()
    path = curves_of(repository.path)
    if path is None:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dlv-curves-")), LIVE)
    return stack.enter_context(CurveStore.open(path, repository.patience)), stack
