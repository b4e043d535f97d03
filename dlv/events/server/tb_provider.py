"""The provider in the shape that TensorBoard's own pages and plugins ask for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from dlv.errors import DlvError, NotFound, UsageError, require
from dlv.events.provider.hyperparameters import Filter, Sort
from dlv.events.provider.provider import Provider, Where
from dlv.events.provider.sampling import Choice
from dlv.events.provider.store import InvalidArgument, Listed, Unreadable

Method = TypeVar("Method", bound=Callable[..., Any])

HPARAMS = "hparams"  # the plugin of hyperparameters
# What TensorBoard says where a scalar is none.
_NO_SCALAR = "can only convert an array of size 1 to a Python scalar"


def data_provider(
    ask: Callable[[], Provider], *, experiment: str | None = None, location: str = ""
) -> Any:
    """A `tensorboard.data.provider.DataProvider`; `ask` gives the provider of this thread.

    `experiment`: the only one there is, by whatever id it is asked for; None: by their names.
    `location` is shown as where the data lies.
    """
    types = require("tensorboard.data.provider", "tensorboard")
    errors = require("tensorboard.errors", "tensorboard")
    made = type("DlvDataProvider", (_Answers, types.DataProvider), {})
    return made(ask, experiment, location, types, errors)


def _public(method: Method) -> Method:
    """As TensorBoard calls it, with a context; errors of dlv become those it answers with."""

    @functools.wraps(method)
    def call(self: _Answers, ctx: Any = None, **asked: Any) -> Any:  # noqa: ARG001
        try:
            return method(self, **asked)
        except DlvError as error:
            raise self.public(error) from error

    return call  # type: ignore[return-value]


class _Answers:
    def __init__(
        self,
        ask: Callable[[], Provider],
        experiment: str | None,
        location: str,
        types: Any,
        errors: Any,
    ) -> None:
        self._ask = ask
        self._experiment = experiment
        self._location = location
        self._types = types
        self._errors = errors
        # TensorBoard lets a ValueError out of a read that meets such a series.
        self._unreadable = type("Unreadable", (errors.InvalidArgumentError, ValueError), {})

    def __str__(self) -> str:
        return f"DlvDataProvider({self._location!r})"

    def public(self, error: DlvError) -> Exception:
        text = f"{error.message}: {error.why}" if error.why else error.message
        if isinstance(error, Unreadable):
            found: Exception = self._unreadable(f"{text} ({_NO_SCALAR})")
        elif isinstance(error, NotFound):
            found = self._errors.NotFoundError(text)
        elif isinstance(error, UsageError):
            found = self._errors.InvalidArgumentError(text)
        else:
            found = self._errors.PublicError(text)
        return found

    @_public
    def experiment_metadata(self, *, experiment_id: str) -> Any:
        return self._types.ExperimentMetadata(
            data_location=self._location, experiment_name=self._name(experiment_id)
        )

    @_public
    def list_plugins(self, *, experiment_id: str) -> list[str]:
        name = self._name(experiment_id)
        found = self._ask().plugins(name)
        # Hyperparameters need no series for their page to have something to show.
        if HPARAMS not in found and self._ask().list_hyperparameters(name, 1):
            found = sorted([*found, HPARAMS])
        return found

    @_public
    def list_runs(self, *, experiment_id: str) -> list[Any]:
        return [
            self._types.Run(run_id=run.name, run_name=run.name, start_time=run.start)
            for run in self._ask().runs(self._name(experiment_id))
        ]

    @_public
    def list_scalars(
        self, *, experiment_id: str, plugin_name: str, run_tag_filter: Any = None
    ) -> Any:
        found = self._ask().list_scalars(plugin_name, **self._where(experiment_id, run_tag_filter))
        return _each(found, lambda each: self._types.ScalarTimeSeries(**_shown(each)))

    @_public
    def list_tensors(
        self, *, experiment_id: str, plugin_name: str, run_tag_filter: Any = None
    ) -> Any:
        found = self._ask().list_tensors(plugin_name, **self._where(experiment_id, run_tag_filter))
        return _each(found, lambda each: self._types.TensorTimeSeries(**_shown(each)))

    @_public
    def list_blob_sequences(
        self, *, experiment_id: str, plugin_name: str, run_tag_filter: Any = None
    ) -> Any:
        where = self._where(experiment_id, run_tag_filter)
        made = self._types.BlobSequenceTimeSeries
        return _each(
            self._ask().list_blob_sequences(plugin_name, **where),
            lambda each: made(max_length=each.length, **_shown(each)),
        )

    @_public
    def read_scalars(
        self,
        *,
        experiment_id: str,
        plugin_name: str,
        downsample: int | None = None,
        run_tag_filter: Any = None,
    ) -> Any:
        where = self._where(experiment_id, run_tag_filter)
        made = self._types.ScalarDatum
        return _each(
            self._ask().read_scalars(plugin_name, _choice(downsample), **where),
            lambda points: list(
                map(made, points.steps.tolist(), points.walls.tolist(), points.values.tolist())
            ),
        )

    @_public
    def read_last_scalars(
        self, *, experiment_id: str, plugin_name: str, run_tag_filter: Any = None
    ) -> Any:
        where = self._where(experiment_id, run_tag_filter)
        found = self._ask().read_last_scalars(plugin_name, **where)
        return _each(found, lambda last: self._types.ScalarDatum(*last))

    @_public
    def read_tensors(
        self,
        *,
        experiment_id: str,
        plugin_name: str,
        downsample: int | None = None,
        run_tag_filter: Any = None,
    ) -> Any:
        where = self._where(experiment_id, run_tag_filter)
        made = self._types.TensorDatum
        return _each(
            self._ask().read_tensors(plugin_name, _choice(downsample), **where),
            lambda found: [made(each.step, each.wall, each.array) for each in found],
        )

    @_public
    def read_blob_sequences(
        self,
        *,
        experiment_id: str,
        plugin_name: str,
        downsample: int | None = None,
        run_tag_filter: Any = None,
    ) -> Any:
        where = self._where(experiment_id, run_tag_filter)
        made, reference = self._types.BlobSequenceDatum, self._types.BlobReference
        return _each(
            self._ask().read_blob_sequences(plugin_name, _choice(downsample), **where),
            lambda found: [
                made(
                    each.step,
                    each.wall,
                    tuple(reference(blob_key=blob.key, url=blob.url) for blob in each.blobs),
                )
                for each in found
            ],
        )

    @_public
    def read_blob(self, *, blob_key: str) -> bytes:
        return self._ask().read_blob(blob_key)

    @_public
    def list_hyperparameters(
        self, *, experiment_ids: Collection[str], limit: int | None = None
    ) -> Any:
        name = self._only(experiment_ids)
        kinds = self._types.HyperparameterDomainType
        found = [
            self._types.Hyperparameter(
                hyperparameter_name=each.name,
                hyperparameter_display_name=each.name,
                domain_type=kinds(_DOMAINS[each.kind]),
                domain=each.domain,
                differs=each.differs,
            )
            for each in self._ask().list_hyperparameters(name, limit)
        ]
        return self._types.ListHyperparametersResult(
            hyperparameters=found, session_groups=self._groups(name)
        )

    @_public
    def read_hyperparameters(
        self,
        *,
        experiment_ids: Collection[str],
        filters: Collection[Any] | None = None,
        sort: Sequence[Any] | None = None,
        hparams_to_include: Collection[str] | None = None,
    ) -> Any:
        return self._groups(
            self._only(experiment_ids),
            filters=[_filter(each) for each in filters or ()],
            sort=[
                Sort(each.hyperparameter_name, each.sort_direction.value == "descending")
                for each in sort or ()
            ],
            include=hparams_to_include,
        )

    def _groups(self, name: str, **asked: Any) -> list[Any]:
        provider, types = self._ask(), self._types
        kinds = {each.name: _DOMAINS[each.kind] for each in provider.list_hyperparameters(name)}

        # Without the experiment, as runs are then found under their own names.
        def session(run: str) -> Any:
            return types.HyperparameterSessionRun(experiment_id="", run=run)

        return [
            types.HyperparameterSessionGroup(
                root=session(group.root),
                sessions=[session(run) for run in group.runs],
                hyperparameter_values=[
                    types.HyperparameterValue(
                        hyperparameter_name=key,
                        domain_type=types.HyperparameterDomainType(kinds[key]),
                        value=value,
                    )
                    for key, value in group.values.items()
                ],
            )
            for group in provider.read_hyperparameters(name, **asked)
        ]

    def _name(self, experiment_id: str) -> str:
        if not isinstance(experiment_id, str):
            raise TypeError(f"experiment_id must be a str, it is {experiment_id!r}")
        return experiment_id if self._experiment is None else self._experiment

    def _only(self, experiment_ids: Collection[str]) -> str:
        names = {self._name(each) for each in experiment_ids}
        if len(names) != 1:
            raise InvalidArgument(
                f"{len(names)} experiments at once", why="runs of one experiment are compared"
            )
        return names.pop()

    def _where(self, experiment_id: str, chosen: Any) -> Where:
        name = self._name(experiment_id)
        if chosen is None:
            return {"experiment": name}
        return {"experiment": name, "runs": chosen.runs, "tags": chosen.tags}


_DOMAINS = {
    "interval": "interval",
    "float": "discrete_float",
    "string": "discrete_string",
    "bool": "discrete_bool",
}


def _each(results: Mapping[str, Mapping[str, Any]], make: Callable[[Any], Any]) -> Any:
    return {
        run: {tag: make(each) for tag, each in by_tag.items()} for run, by_tag in results.items()
    }


def _shown(listed: Listed) -> dict[str, Any]:
    return {
        "max_step": listed.max_step,
        "max_wall_time": listed.max_wall,
        "plugin_content": listed.content,
        "description": listed.description,
        "display_name": listed.display_name,
    }


def _choice(downsample: int | None) -> Choice:
    if downsample is None:
        raise TypeError("`downsample` is required")
    return Choice(points=downsample)


def _filter(query_result: Any) -> Filter:
    name, kind, given = (
        query_result.hyperparameter_name,
        query_result.filter_type.value,
        query_result.filter,
    )
    if kind == "regex":
        return Filter(name, pattern=given)
    if kind == "interval":
        return Filter(name, interval=tuple(given))
    return Filter(name, among=list(given))
