"""The data of a trial, read into arrays of the kinds that its network takes, and split in two.

Fingerprints of data are kept as long as files look the same: by size, time and inode.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import dlv.disk.durable as durable
from dlv.canonical import dumps, hash_bytes, hash_of
from dlv.errors import Conflict, DlvError, NotFound, UsageError
from dlv.kinds import Array
from dlv.network.graph import Input, Network
from dlv.network.ops.op import op_of
from dlv.network.sizes import same, text
from dlv.training.config import TRAINER
from dlv.training.trainers.datasets import Column, Data, Part, Rows, Source, Wanted
from dlv.training.trial_files import Trial

MOST_HELD = 2 << 30  # beyond this, rows lie in a file that is mapped
_BLOCK = 8 << 20
# What numpy has no type for is kept in the next wider one.
_FLOATS = {"float16": np.float16, "float32": np.float32, "float64": np.float64}


Reader = Callable[[str, Mapping[str, Any], Sequence[Wanted], Path], Source]


def opened(trial: Trial, reader: Reader) -> Data:
    """The data of a trial. Conflict if it is not what it was when the trial was made."""
    where = trial.config.input_data or ""
    settings = trial.config.get("data") or {}
    taken = inputs_of(trial.network)
    source = reader(trial.path_of(where), settings, wanted_of(taken), trial.directory)
    meant = trial.fingerprints.get("input_data")
    if meant is not None and source.fingerprint not in (None, meant):
        raise Conflict(
            f"{where} has changed since this trial was made",
            why=f"its fingerprint was {meant[:7]}, and is {str(source.fingerprint)[:7]}",
            hint="repeat the query: trials with the new data are other trials",
        )
    share = trial.config.get("val", 0.0)
    if trial.config.trainer != TRAINER or source.fingerprint is None or source.batches:
        return load(source, taken, share)
    # Read again for each slice, a second of training would have a fifth of it on top.
    shapes = [[each.name, list(each.shape), each.dtype] for each in taken]
    key = dumps([trial.path_of(where), source.fingerprint, dict(settings), share, shapes])
    return _last.get(key, lambda: load(source, taken, share))


class _Last:
    """The rows that were read last, for the next slice of this worker.

    Only for the trainer that is known to leave them as they are.
    """

    def __init__(self) -> None:
        self._key = b""
        self._data: Data | None = None

    def get(self, key: bytes, read: Callable[[], Data]) -> Data:
        if self._data is None or key != self._key:
            self._data = None  # two of them may be more than memory holds
            self._data = read()
            self._key = key
        return self._data


_last = _Last()


def inputs_of(network: Network) -> list[Input]:
    """What is handed to a network, and leads to its first output."""
    known = list(network.inputs)
    for node in network.nodes:
        if op_of(node).placeholder:
            known.append(Input(node.name, tuple(node.attrs["shape"]), node.attrs["dtype"]))
    used = network.needed(name for name, _ in network.outputs[:1])
    return [each for each in known if each.name in used]


def load(source: Source, inputs: Sequence[Input], share: float = 0.0) -> Data:
    """As arrays of the kinds that the network takes; `share` of the rows to validate on.

    That share is only taken where the data has no part for it, and is the same for every trial.
    """
    if source.batches is not None:
        make = source.batches

        def batches(seed: int, step: int) -> Rows:
            return _batch_rows(make(seed, step), inputs, f"{source.name}, step {step}")

        validation = None if source.validation is None else _loaded(source.validation, inputs)
        return Data(source.name, None, validation, None, batches)
    if source.train is None:
        raise UsageError(f"{source.name} has no rows to train on")
    train = _loaded(source.train, inputs)
    classes = source.train.classes
    if source.validation is not None:
        return Data(source.name, train, _loaded(source.validation, inputs), classes)
    count = validation_count(train.count, share)
    if not count:
        return Data(source.name, train, None, classes)
    places = permutation("validation", train.count)
    return Data(
        source.name,
        train.take(np.sort(places[count:])),
        train.take(np.sort(places[:count])),
        classes,
    )


def validation_count(count: int, share: float) -> int:
    """How many rows are validated on, where the data does not say which."""
    return min(max(round(count * share), 1), count - 1) if share else 0


def permutation(key: str, count: int) -> npt.NDArray[np.intp]:
    """The same order for a key everywhere: by the raw words of Philox, which numpy keeps."""
    words = np.random.Philox(key=int(hash_bytes(key.encode())[:32], 16)).random_raw(count)
    return np.argsort(words, kind="stable")


def wanted_of(inputs: Sequence[Input]) -> list[Wanted]:
    """What a reader of data is asked for: names, and shapes without the batch."""
    return [
        (each.name, tuple(dim if isinstance(dim, int) else None for dim in each.shape[1:]))
        for each in inputs
    ]


def _loaded(part: Part, wanted: Sequence[Input]) -> Rows:
    inputs = {}
    for each in wanted:
        column = part.inputs[each.name]
        check_shape(each, column.shape, column.name)
        inputs[each.name] = _read(column, part.count, kind_of(each), each)
    labels = None
    if part.labels is not None:
        labels = _read(part.labels, part.count, part.labels.dtype, None)
    return Rows(inputs, labels, part.count)


def kind_of(entry: Input) -> np.dtype[Any]:
    if "float" in entry.dtype:
        return np.dtype(_FLOATS.get(entry.dtype, np.float32))
    return np.dtype(np.bool_ if entry.dtype == "bool" else np.int64)


def _read(column: Column, count: int, dtype: np.dtype[Any], entry: Input | None) -> Array:
    """All rows in memory or, where they are too many, in a file that goes with the array."""
    shape = (count, *column.shape)
    each = max(int(np.prod(column.shape, dtype=np.int64)) * dtype.itemsize, 1)
    if each * count <= MOST_HELD:
        found: Array = np.empty(shape, dtype)
    else:
        with tempfile.TemporaryFile(prefix="dlv-") as file:
            found = np.memmap(file, dtype, "w+", shape=shape)
    at_once = max(1, _BLOCK // each)
    for start in range(0, count, at_once):
        stop = min(start + at_once, count)
        found[start:stop] = fitted(column.read(start, stop), dtype, entry, column.name)
    return found


def fitted(
    rows: Array, dtype: np.dtype[Any], entry: Input | None, name: str, called: str = "the network"
) -> Array:
    """Of that dtype; UsageError if that would cut something off."""
    if entry is not None and dtype.kind != "f" and rows.dtype.kind == "f":
        whole = rows.astype(np.int64)
        if not np.array_equal(whole, rows):
            raise UsageError(
                f"{name} has fractions, but {called} takes integers",
                why=f"its input `{entry.name}` is of {entry.dtype}",
            )
        return whole.astype(dtype, copy=False)
    return rows.astype(dtype, copy=False)


def check_shape(entry: Input, shape: Sequence[int], name: str, called: str = "the network") -> None:
    """Whether rows of this shape are what an input of a network takes."""
    want = entry.shape[1:]
    if not entry.shape or (len(shape) == len(want) and all(map(same, shape, want))):
        return
    sides = [dim for dim in want if isinstance(dim, int)]
    enough = len(sides) == len(want) and int(np.prod(sides)) == int(np.prod(shape))
    raise UsageError(
        f"examples of {name} do not fit {called}",
        why=f"they are {text(tuple(shape))}, its input `{entry.name}` takes {text(want)}",
        hint=f"config.data.shape = {sides} gives them this shape" if enough else None,
    )


def _batch_rows(batch: Any, inputs: Sequence[Input], where: str) -> Rows:
    """A batch that code has made: x, (x, y), or arrays by name, with the labels as y."""
    labels: Any = None
    if isinstance(batch, tuple) and len(batch) == 2:
        batch, labels = batch
    if isinstance(batch, Mapping):
        arrays = dict(batch)
        labels = arrays.pop("y", arrays.pop("labels", labels))
        if len(inputs) == 1 and len(arrays) == 1:
            arrays = {inputs[0].name: next(iter(arrays.values()))}
    else:
        arrays = {inputs[0].name: batch}
    columns = {}
    for each in inputs:
        if each.name not in arrays:
            raise UsageError(f"{where} has no array for the input `{each.name}`")
        array = np.asarray(arrays[each.name])
        if array.dtype.kind not in "biuf" or not array.ndim:
            raise UsageError(f"{where} has no numbers", why=f"{array.dtype} {array.shape}")
        check_shape(each, array.shape[1:], where)
        columns[each.name] = fitted(array, kind_of(each), each, where)
    held = None if labels is None else np.asarray(labels)
    counts = {len(array) for array in (*columns.values(), *([] if held is None else [held]))}
    if len(counts) != 1 or not min(counts):
        raise UsageError(f"the arrays of {where} have no rows, or different numbers of them")
    return Rows(columns, held, counts.pop())


class Batches:
    """Epochs in an order of their own, each cut into batches of one size; the rest is left out."""

    def __init__(
        self,
        data: Data,
        seed: int,
        size: int,
        augment: Mapping[str, Any],
        *,
        channels_last: bool = False,
    ) -> None:
        if data.train is None and data.batches is None:
            raise UsageError(f"{data.name} has no rows to train on")
        self._data = data
        self._seed = seed
        self._augment = augment if any(augment.values()) else None
        self._last = channels_last
        count = 0 if data.train is None else data.train.count
        self._size = min(size, count)
        self._each = max(1, count // self._size) if count else 0
        self._epoch = -1
        self._order: Array = np.empty(0, np.intp)

    def batch(self, step: int) -> Rows:
        """The batch of a step, from 1 on."""
        if self._data.batches is not None:
            rows = self._data.batches(self._seed, step)
        else:
            assert self._data.train is not None
            epoch, place = divmod(step - 1, self._each)
            if epoch != self._epoch:
                self._order = permutation(f"{self._seed}:order:{epoch}", self._data.train.count)
                self._epoch = epoch
            start = place * self._size
            rows = self._data.train.take(self._order[start : start + self._size])
        if self._augment is None:
            return rows
        draw = random(self._seed, "augment", step)
        return augmented(rows, self._augment, draw, self._data.name, channels_last=self._last)


def random(seed: int, purpose: str, step: int) -> np.random.Generator:
    """Random numbers of one purpose at one step."""
    key = int(hash_bytes(f"{seed}:{purpose}:{step}".encode())[:32], 16)
    return np.random.Generator(np.random.Philox(key=key))


def number(seed: int, purpose: str, step: int) -> int:
    """A seed for generators of others; 63 bits."""
    return int(hash_bytes(f"{seed}:{purpose}:{step}".encode())[:16], 16) >> 1


def augmented(
    rows: Rows,
    augment: Mapping[str, Any],
    draw: np.random.Generator,
    name: str,
    *,
    channels_last: bool = False,
) -> Rows:
    """Images turned over, moved by some pixels, with noise: each row in its own way."""
    inputs, images = {}, 0
    for key, array in rows.inputs.items():
        if array.dtype.kind == "f" and array.ndim in (3, 4):
            images += 1
            array = _moved(array, augment, draw, channels_last and array.ndim == 4)
        if array.dtype.kind == "f" and augment["noise"]:
            noise = draw.standard_normal(array.shape, np.float32) * np.float32(augment["noise"])
            array = array + noise.astype(array.dtype)
        inputs[key] = array
    if not images and (augment["flip"] or augment["shift"]):
        raise UsageError(
            f"config.augment requires images, and {name} has none",
            why="rows of fractions with two axes, or three, are images",
        )
    return Rows(inputs, rows.labels, rows.count)


def _moved(
    array: Array, augment: Mapping[str, Any], draw: np.random.Generator, last: bool
) -> Array:
    """Height and width are the last two axes, or those before a `last` one of channels."""
    tall, wide = (1, 2) if last else (array.ndim - 2, array.ndim - 1)
    if augment["flip"]:
        turned = draw.integers(0, 2, len(array)).astype(bool)
        array = np.where(turned.reshape(-1, *[1] * (array.ndim - 1)), np.flip(array, wide), array)
    most = augment["shift"]
    if not most:
        return array
    pads = [(most, most) if axis in (tall, wide) else (0, 0) for axis in range(array.ndim)]
    padded = np.pad(array, pads)
    moved = np.empty_like(array)
    for place, (down, right) in enumerate(draw.integers(0, 2 * most + 1, (len(array), 2))):
        cut = [slice(None)] * (array.ndim - 1)
        cut[tall - 1] = slice(down, down + array.shape[tall])
        cut[wide - 1] = slice(right, right + array.shape[wide])
        moved[place] = padded[place][tuple(cut)]
    return moved


CACHE = "fingerprints.json"  # its usual name
# A file that was changed so shortly before it was read may change again without a trace.
_FRESH = 2_000_000_000
_MOST_KEPT = 1000


class Fingerprints:
    """`content` reads a file or folder whole; what it found is kept in the file `cache`."""

    def __init__(self, cache: Path, content: Callable[[Path], str]) -> None:
        self._cache = cache
        self._content = content

    def __call__(self, path: Path) -> str:
        """The fingerprint of a file's content, or of a folder's files."""
        key = str(path.absolute())
        seen, newest = _look(path)
        kept = self._read()
        row = kept.get(key)
        if isinstance(row, list) and len(row) == 2 and row[0] == seen and isinstance(row[1], str):
            return row[1]
        begun = time.time_ns()
        found = self._content(path)
        if newest + _FRESH < begun and _look(path)[0] == seen:
            kept = {**self._read(), key: [seen, found]}
            self._write(dict(list(kept.items())[-_MOST_KEPT:]))
        return found

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self._cache.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, entries: dict[str, Any]) -> None:
        try:
            tmp = durable.make_directory(self._cache.parent / "tmp")
            durable.replace(self._cache, json.dumps(entries).encode(), tmp_dir=tmp)
        except DlvError:
            return  # it only saves time


def _look(path: Path) -> tuple[str, int]:
    """What size, time and inode of all files come to, and the newest of their times."""
    try:
        if not path.is_dir():
            rows, newest = [_row(path, path.name)], path.stat().st_mtime_ns
        else:
            files = sorted(each for each in path.rglob("*") if each.is_file())
            rows = [_row(each, each.relative_to(path).as_posix()) for each in files]
            newest = max((row[2] for row in rows), default=0)
    except FileNotFoundError:
        raise NotFound(f"no such file: {path}", why="config.input_data names it") from None
    except OSError as error:
        raise durable.storage_error("read", path, error) from error
    return hash_of(rows), newest


def _row(path: Path, name: str) -> list[Any]:
    seen = path.stat()
    return [os.fsencode(name).hex(), seen.st_size, seen.st_mtime_ns, seen.st_ino]
