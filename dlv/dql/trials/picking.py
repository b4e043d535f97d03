"""Which trials a query has: all of a grid, some by lot, or batch after batch as they end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dlv.dql.trials.preparing import Planned, Preparing
from dlv.training.ledger import sampling
from dlv.training.ledger.ledger import Ledger
from dlv.training.ledger.results import RunView, TrialView
from dlv.training.ledger.sampling import Suggesting, TriedPoint
from dlv.training.ledger.space import Point


@dataclass
class Picking:
    """The trials so far, by id, in their order; equal ones once."""

    preparing: Preparing
    trials: dict[str, Planned] = field(default_factory=dict)
    asked: list[list[tuple[Point, str]]] = field(default_factory=list)  # by candidate

    def __post_init__(self) -> None:
        self.asked = [[] for _ in self.preparing.candidates]

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
            self.asked[place].append((point, trial.id))
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
                TriedPoint(point, self._value(views[name])) for point, name in self.asked[place]
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
            before = sum(map(len, self.asked))
            fresh = self._suggested(views)
            if any(each.id not in views for each in fresh):
                self._untaken(fresh)
                return
            if sum(map(len, self.asked)) == before:
                return

    def _untaken(self, fresh: Sequence[Planned]) -> None:
        names = {each.id for each in fresh}
        for asked in self.asked:
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
            while not fresh and before != (before := sum(map(len, self.asked))):
                fresh = self._suggested(views)
            write(fresh)
            wanted = self.preparing.work.sampling.n or 0
            last = not fresh or all(len(asked) >= wanted for asked in self.asked)
            ledger.add_trials(run, [each.new() for each in fresh], last=last)

        return ask
