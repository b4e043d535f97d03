"""The generic data API: curves by experiment, plugin, run and tag, in three classes of data."""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import secrets
import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypedDict, TypeVar, Unpack

from dlv.canonical import keyed_hash
from dlv.errors import NotFound, nearest
from dlv.events.logs.points import BLOBS, SCALAR, TENSOR
from dlv.events.provider import hyperparameters, sampling
from dlv.events.provider.hyperparameters import Filter, Hyperparameter, SessionGroup, Sort
from dlv.events.provider.sampling import Choice
from dlv.events.provider.store import (
    BlobReference,
    BlobRow,
    Blobs,
    ByRun,
    InvalidArgument,
    Listed,
    Points,
    Run,
    Scalar,
    SeriesRow,
    Store,
    Tensor,
    Unreadable,
    array_of,
)

_PLACE = struct.Struct(">qqIq")
_CHECK = 16  # bytes of the keyed hash
_FORM = re.compile(r"[A-Za-z0-9_-]{59}\Z")  # base64url of 28 + 16 bytes, without its padding


class Place(NamedTuple):
    """Blob `number` of the point `ordinal` of a series; `blob` is what stood there.

    A restart moves points to other ordinals, and then the key must not open another blob.
    """

    series: int
    ordinal: int
    number: int
    blob: int


class BlobKeys:
    """Makes and reads keys with a secret; without one given they hold as long as the object."""

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secrets.token_bytes(32) if secret is None else secret

    def key(self, place: Place) -> str:
        packed = _PLACE.pack(*place)
        return base64.urlsafe_b64encode(packed + self._check(packed)).decode().rstrip("=")

    def place(self, key: str) -> Place:
        """The inverse of `key`; whatever it did not make is not found."""
        if isinstance(key, str) and _FORM.match(key):
            try:
                data = base64.b64decode(key + "=", altchars=b"-_", validate=True)
            except binascii.Error:
                data = b""
            packed, check = data[: _PLACE.size], data[_PLACE.size :]
            # The last character holds bits that no byte takes: one key only for each place.
            exact = base64.urlsafe_b64encode(data).decode().rstrip("=") == key
            if exact and hmac.compare_digest(check, self._check(packed)):
                return Place(*_PLACE.unpack(packed))
        raise NotFound(
            "no blob has this key",
            why="keys are good for the server, or the object, that gave them",
            hint="ask for the blob sequence again",
        )

    def _check(self, packed: bytes) -> bytes:
        return keyed_hash(self._secret, packed)[:_CHECK]


CAP = 10_000_000  # points of one answer
KINDS = {SCALAR: "scalar", TENSOR: "tensor", BLOBS: "blobs"}
Indices = tuple[int, int] | Literal["last"] | None

T = TypeVar("T")


class Where(TypedDict, total=False):
    """Which series: None is all, what is empty admits nothing."""

    experiment: str
    runs: Collection[str] | None
    tags: Collection[str] | None


class Provider:
    """Answers from a store, of series that exist; none has more than `cap` points."""

    def __init__(self, store: Store, *, keys: BlobKeys | None = None, cap: int = CAP) -> None:
        self.store = store
        self.keys = keys or BlobKeys()
        self.cap = cap

    def experiments(self) -> list[str]:
        return [name for _, name in self.store.experiments()]

    def runs(self, experiment: str = "") -> list[Run]:
        key = self._experiment(experiment)
        found = () if key is None else self.store.runs(key)
        return [Run(row.name, row.version, row.start_time) for row in found]

    def plugins(self, experiment: str = "") -> list[str]:
        """Those that `series` lists something of."""
        return sorted(
            {
                row.plugin
                for row in self._rows({"experiment": experiment})
                if row.data_class in KINDS
            }
        )

    def series(self, plugin: str, **where: Unpack[Where]) -> ByRun[Listed]:
        """Everything of a plugin, each with its kind of data."""
        rows = self._rows(where, _text(plugin))
        return _by_run((row, _listed(row)) for row in rows if row.data_class in KINDS)

    def list_scalars(self, plugin: str = "scalars", **where: Unpack[Where]) -> ByRun[Listed]:
        return self._list(where, plugin, SCALAR)

    def list_tensors(self, plugin: str, **where: Unpack[Where]) -> ByRun[Listed]:
        return self._list(where, plugin, TENSOR)

    def list_blob_sequences(self, plugin: str, **where: Unpack[Where]) -> ByRun[Listed]:
        return self._list(where, plugin, BLOBS)

    def read_scalars(
        self, plugin: str = "scalars", choice: Choice | None = None, **where: Unpack[Where]
    ) -> ByRun[Points]:
        """Points by step; a choice not made is of `downsample.SAMPLE` points of each series."""
        choice = choice or Choice()
        rows = self._readable(where, plugin, SCALAR, choice)
        return _by_run((row, sampling.points_of(self.store, row, choice)) for row in rows)

    def read_last_scalars(self, plugin: str = "scalars", **where: Unpack[Where]) -> ByRun[Scalar]:
        """The point of each series that was written last, whatever its step; of empty ones none."""
        rows = self._readable(where, plugin, SCALAR, Choice(points=1))
        return _by_run((row, self._last(row)) for row in rows if row.n)

    def read_tensors(
        self, plugin: str, choice: Choice | None = None, **where: Unpack[Where]
    ) -> ByRun[list[Tensor]]:
        choice = choice or Choice()
        rows = self._readable(where, plugin, TENSOR, choice)
        return _by_run((row, self._tensors(row, choice)) for row in rows)

    def read_blob_sequences(
        self,
        plugin: str,
        choice: Choice | None = None,
        indices: Indices = None,
        **where: Unpack[Where],
    ) -> ByRun[list[Blobs]]:
        """Sequences by step, of each step the first; `indices` (first, last) or "last" of each."""
        choice = choice or Choice()
        _check(indices)
        rows = self._readable(where, plugin, BLOBS, choice)
        return _by_run((row, self._sequences(row, choice, indices)) for row in rows)

    def read_blob(self, key: str) -> bytes:
        return b"".join(self.open_blob(key))

    def open_blob(self, key: str) -> Iterator[bytes]:
        """The blob piece by piece; an unknown key is told of before the first one."""
        return self._pieces(self.keys.place(key))

    def list_hyperparameters(
        self, experiment: str = "", most: int | None = None
    ) -> list[Hyperparameter]:
        """What differs between runs first; `most` None or 0: all."""
        return hyperparameters.listed(self._hyperparameters(experiment), most)

    def read_hyperparameters(
        self,
        experiment: str = "",
        *,
        filters: Sequence[Filter] = (),
        sort: Sequence[Sort] = (),
        include: Collection[str] | None = None,
    ) -> list[SessionGroup]:
        """Runs in groups of equal values; `include` names what of them is wanted."""
        return hyperparameters.groups(self._hyperparameters(experiment), filters, sort, include)

    def _hyperparameters(self, experiment: str) -> hyperparameters.Logged:
        key = self._experiment(experiment)
        return () if key is None else self.store.hyperparameters(key)

    def _pieces(self, place: Place) -> Iterator[bytes]:
        rows = list(self.store.blob_sequences(place.series, [place.ordinal]))
        blobs = rows[0].blobs if rows else ()
        if place.number >= len(blobs) or blobs[place.number][0] != place.blob:
            raise NotFound("this blob is no longer there", hint="ask for the sequence again")
        return self.store.blob(place.series, place.ordinal, place.number)

    def _experiment(self, name: str) -> int | None:
        """None of the unnamed one as long as it holds nothing."""
        known = {name: key for key, name in self.store.experiments()}
        if name and name not in known:
            raise NotFound(f"no experiment `{name}`", did_you_mean=nearest(name, known))
        return known.get(name)

    def _rows(
        self, where: Where, plugin: str | None = None, data_class: int | None = None
    ) -> Sequence[SeriesRow]:
        runs, tags = where.get("runs"), where.get("tags")
        for name, names in (("runs", runs), ("tags", tags)):
            plain = isinstance(names, Collection) and not isinstance(names, str)
            if names is not None and not (plain and all(isinstance(each, str) for each in names)):
                raise InvalidArgument(
                    f"`{name}` is {names!r}", why="a collection of names, or None"
                )
        key = self._experiment(where.get("experiment", ""))
        if key is None or (plugin is not None and not _can_be_kept(plugin)):
            return ()
        return self.store.series(key, plugin=plugin, data_class=data_class, runs=runs, tags=tags)

    def _list(self, where: Where, plugin: str, data_class: int) -> ByRun[Listed]:
        rows = self._rows(where, _text(plugin), data_class)
        return _by_run((row, _listed(row)) for row in rows)

    def _readable(
        self, where: Where, plugin: str, data_class: int, choice: Choice
    ) -> Sequence[SeriesRow]:
        """The rows that pass, if what is asked of them is not too much."""
        rows = self._rows(where, _text(plugin), data_class)
        broken = [row for row in rows if row.error and not row.n]
        if broken and len(broken) == len(rows) and where.get("runs") and where.get("tags"):
            raise Unreadable(
                f"`{broken[0].tag}` of the run `{broken[0].run}` cannot be read",
                why=broken[0].error,
            )
        size = sum(choice.most(row.n) for row in rows)
        if size > self.cap:
            raise InvalidArgument(
                f"that would be up to {size} points of {len(rows)} series",
                why=f"an answer has at most {self.cap}",
                hint="fewer runs or tags, a range of steps, or fewer points of each series;"
                " the limit is `curves.cap`",
            )
        return [row for row in rows if row.n or not row.error]

    def _last(self, row: SeriesRow) -> Scalar:
        points = sampling.last_of(self.store, row)
        return Scalar(int(points.steps[0]), float(points.walls[0]), float(points.values[0]))

    def _tensors(self, row: SeriesRow, choice: Choice) -> list[Tensor]:
        steps = None
        if not choice.whole or choice.sampling == "step":
            steps = [each.step for each in self.store.tensors(row.id)]
        places = sampling.places(choice, row.n, steps)
        found = [
            Tensor(each.step, each.wall, array_of(each), each.legacy)
            for each in self.store.tensors(row.id, places)
        ]
        return sorted(found, key=lambda tensor: tensor.step)

    def _sequences(self, row: SeriesRow, choice: Choice, indices: Indices) -> list[Blobs]:
        first: dict[int, tuple[int, BlobRow]] = {}
        for ordinal, each in enumerate(self.store.blob_sequences(row.id)):
            first.setdefault(each.step, (ordinal, each))
        found = [first[step] for step in sorted(first)]
        places = sampling.places(choice, len(found), [each.step for _, each in found])
        return [self._blobs(row.id, *found[at], indices) for at in places]

    def _blobs(self, series: int, ordinal: int, row: BlobRow, indices: Indices) -> Blobs:
        numbers = range(len(row.blobs))
        if indices == "last":
            numbers = numbers[-1:]
        elif indices is not None:
            numbers = numbers[indices[0] : indices[1] + 1]
        return Blobs(
            row.step,
            row.wall,
            tuple(
                BlobReference(
                    key=self.keys.key(Place(series, ordinal, number, row.blobs[number][0])),
                    index=number,
                    size=row.blobs[number][1],
                )
                for number in numbers
            ),
        )


def _by_run(results: Iterable[tuple[SeriesRow, T]]) -> ByRun[T]:
    made: dict[str, dict[str, T]] = {}
    for row, answer in results:
        made.setdefault(row.run, {})[row.tag] = answer
    return made


def _listed(row: SeriesRow) -> Listed:
    return Listed(
        row.run,
        row.tag,
        KINDS[row.data_class],
        row.n,
        row.max_step,
        row.max_wall,
        row.max_length if row.data_class == BLOBS and row.n else None,
        row.content,
        row.display_name,
        row.description,
        row.last if row.n else None,
        row.error,
    )


def _check(indices: Indices) -> None:
    if indices is None or indices == "last":
        return
    whole = isinstance(indices, tuple) and [type(each) for each in indices] == [int, int]
    if not (whole and 0 <= indices[0] <= indices[1]):
        raise InvalidArgument(
            f"{indices!r} is not a range of blobs",
            why='(first, last) from 0 on, both included, or "last"',
        )


def _text(plugin: str) -> str:
    """Every question is about one plugin."""
    if not isinstance(plugin, str):
        raise InvalidArgument(f"`plugin` is {plugin!r}", why="the name of one plugin")
    return plugin


def _can_be_kept(name: str) -> bool:
    """Half of a character has no UTF-8, and no series has such a name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
