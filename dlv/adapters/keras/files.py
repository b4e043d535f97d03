"""Keras 3 `.keras` files: a zip with the settings as JSON and the weights as HDF5.

Nothing of it is run: layers are known by name, code (Lambda) is left alone. Skeleton: splice
form over the whole zip, whose members Keras stores as they are.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import field, replace
from pathlib import Path
from typing import Any, BinaryIO

from dlv.adapters import archive, splice
from dlv.adapters.archive import Entry
from dlv.adapters.checkpoint import Checkpoint, Part, Tensor
from dlv.adapters.hdf5 import file as hdf5
from dlv.adapters.hdf5.file import Contents, Dataset
from dlv.adapters.hdf5.objects import Memory, Region, Window
from dlv.adapters.keras.config import MOST_BYTES, Model, Unsayable, is_model, parse, read_model
from dlv.adapters.keras.graph import IMPORTER, Graph
from dlv.adapters.keras.rules.table import converter
from dlv.adapters.keras.weights import Found, Names, listed, numbered
from dlv.adapters.source import Source, opened
from dlv.adapters.splice import MOST_LITERAL_BYTES, Piece
from dlv.dataclass import dataclass
from dlv.errors import Damaged, UnsafeInput, UsageError
from dlv.kinds import Raw
from dlv.network.fields import whole
from dlv.network.graph import Network

FORMAT = "keras"
SUFFIX = ".keras"

CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
MOST_UNPACKED_BYTES = 128 << 20


def open(path: str) -> Checkpoint:  # noqa: A001 (the name in the Adapter protocol)
    """Check the archive, the settings and the structure of the weights; nothing is run."""
    return opened(path, _open)


def configuration(path: str) -> dict[str, Any]:
    """The configuration of the file's model."""
    with closing(Source(path)) as file:
        entries = {entry.name: entry for entry in archive.read_directory(file)}
        return _json(file, entries, CONFIG)


def unpack_weights(path: str, target: Path) -> bool:
    """The weights in a file of their own; False where there are none."""
    with closing(Source(path)) as file:
        entries = {entry.name: entry for entry in archive.read_directory(file)}
        if WEIGHTS not in entries:
            return False
        with target.open("wb") as out:
            for piece in archive.stream(file, entries[WEIGHTS], entries[WEIGHTS].size):
                out.write(piece)
    return True


restore = splice.restore


def save(out: BinaryIO, tensors: Sequence[Tensor], metadata: dict[str, str]) -> None:
    """Refuse: a `.keras` file needs a network, which `writer.save_network` writes too."""
    del out, tensors, metadata
    raise UsageError(
        "a .keras file contains a network and its weights",
        why="here are weights only",
        hint="export to .h5 or to safetensors",
    )


def _open(file: Source) -> Checkpoint:
    entries = {entry.name: entry for entry in archive.read_directory(file)}
    config = _json(file, entries, CONFIG)
    version = _json(file, entries, METADATA).get("keras_version") if METADATA in entries else None
    name = f"{CONFIG} of {file.name}"
    description = describe(FORMAT, config, version, name, config.get("compile_config"))
    entry = entries.get(WEIGHTS)
    if entry is None:
        description.notes.append(f"{file.name} has no {WEIGHTS}: a network without weights")
        contents = Contents(Memory(b"", file.name))
    else:
        contents = hdf5.read(_region(file, entry))
    stored = entry is not None and entry.method == archive.STORED
    return checkpoint_of(
        file,
        contents,
        numbered(contents, description.model),
        description,
        base=entry.offset if entry is not None and stored else None,
        check=lambda: _check(file, entry if stored else None),
    )


def _json(file: Source, entries: dict[str, Entry], name: str) -> dict[str, Any]:
    if name not in entries:
        raise Damaged(f"{file.name} is not a Keras model", why=f"it has no {name}")
    data = archive.read(file, entries[name], MOST_BYTES)
    return parse(bytes(data), f"{name} of {file.name}")


def _region(file: Source, entry: Entry) -> Region:
    name = f"{entry.name} of {file.name}"
    if entry.method == archive.STORED:
        return Window(file, entry.offset, entry.size, name)
    if entry.size > MOST_UNPACKED_BYTES:
        raise UnsafeInput(
            f"{name} is packed and too large",
            why=f"{entry.size} bytes, the limit is {MOST_UNPACKED_BYTES}",
            hint="save the model again, Keras stores its weights as they are",
        )
    return Memory(archive.read(file, entry, MOST_UNPACKED_BYTES), name)


def _check(file: Source, entry: Entry | None) -> None:
    """The checksum of the archive covers all weights together."""
    if entry is not None:
        for _ in archive.stream(file, entry, entry.size):
            pass


@dataclass
class Description:
    """What a file says about its model; `model` is None unless that is a graph of layers."""

    format: str
    model: Model | None = None
    notes: list[str] = field(default_factory=list)
    version: str | None = None  # of Keras
    hyperparameters: dict[str, Any] = field(default_factory=dict)


def describe(
    format_: str, config: Mapping[str, Any], version: Any, file_name: str, compiled: Any
) -> Description:
    """The description in a configuration and, in `compiled`, the settings of its training."""
    model = read_model(config, file_name)
    notes = []
    if model is None:
        kind = str(config.get("class_name"))[:80]
        notes.append(f"{kind} is a model made by code, not a graph of layers: weights only")
    text = version if isinstance(version, str) and len(version) < 40 else None
    return Description(format_, model, notes, text, settings(compiled))


def network_of(
    description: Description, weights: Found, file_name: str
) -> tuple[Network | None, list[Tensor], list[str]]:
    """The network of a model, with the tensors that its layers have in the file.

    Then its constants, which are numbers among the settings, and notes.
    """
    if description.model is None:
        return None, [], []
    if weights.misnamed is not None:
        return (
            None,
            [],
            [f"no network: the weights of {weights.misnamed!r} are those of another layer"],
        )
    shapes = {name: dataset.shape for name, dataset, _ in weights.tensors}
    names = Names(weights.variables)
    graph = Graph(names, converter, file_name, description.version, shapes)
    try:
        network = graph.top(description.model)
    except Unsayable as error:
        return None, [], [f"no network: {error}"]
    origin = dict(IMPORTER)
    if description.version:
        origin["version"] = description.version
    notes = [f"{text}: {listed(names)}" for text, names in graph.notes.items()]
    return replace(network, origin=origin), list(graph.constants.values()), notes


def tensors_of(weights: Found, region: Region, check: Callable[[], None]) -> list[Tensor]:
    """The tensors; `check` is called before the first byte of any of them is read."""
    once = _Once(check)
    return [
        Tensor(
            name,
            dataset.dtype,
            dataset.shape,
            dataset.nbytes,
            _reader(dataset, region, once),
            role=role,
            part=_part(dataset, region, once),
        )
        for name, dataset, role in weights.tensors
    ]


class _Once:
    def __init__(self, check: Callable[[], None]) -> None:
        self.check = check
        self.lock = threading.Lock()
        self.done = False

    def __call__(self) -> None:
        with self.lock:
            if not self.done:
                self.check()
                self.done = True


def _reader(dataset: Dataset, region: Region, once: _Once) -> Callable[[], Raw]:
    def read() -> Raw:
        once()
        return dataset.read(region)

    return read


def _part(dataset: Dataset, region: Region, once: _Once) -> Part | None:
    offset = dataset.offset
    if offset is None or dataset.kind.unit != 1:
        return None

    def part(start: int, size: int) -> Raw:
        once()
        return region.read(offset + start, size)

    return part


def _skeleton(file: Source, weights: Found, base: int | None) -> tuple[bytes | None, list[str]]:
    """The skeleton that writes the file again, or a note why there is none."""
    if base is None or any(dataset.chunked for _, dataset, _ in weights.tensors):
        return None, ["packed weights: the tensors are kept, the file is not stored byte for byte"]
    pieces = []
    for index, (_, dataset, _) in enumerate(weights.tensors):
        if dataset.nbytes:
            piece = Piece(index, 0, dataset.nbytes, "C", dataset.kind.unit)
            pieces.append((base + (dataset.offset or 0), piece))
    literal = file.size - sum(piece.size for _, piece in pieces)
    if literal > MOST_LITERAL_BYTES:
        note = f"{literal >> 20} MiB besides the tensors: the file is not stored byte for byte"
        return None, [note]
    return splice.cut(file, pieces), []


def checkpoint_of(
    file: Source,
    contents: Contents,
    weights: Found,
    description: Description,
    *,
    base: int | None,
    check: Callable[[], None] = lambda: None,
) -> Checkpoint:
    """The checkpoint of a file, which stays open; `base`: where the HDF5 part begins, if plain."""
    if len(weights.tensors) != len(contents.datasets):
        raise UnsafeInput(f"{file.name} holds tensors under several names")
    network, constants, notes = network_of(description, weights, file.name)
    skeleton, more = _skeleton(file, weights, base)
    return Checkpoint(
        description.format,
        tensors_of(weights, contents.region, check),
        skeleton,
        exact=skeleton is not None,
        hyperparameters=description.hyperparameters,
        notes=[*description.notes, *notes, *more],
        close=file.close,
        network=network,
        constants=constants,
    )


MOST_SETTINGS = 200
_MOST_TEXT = 1000
_INNER = ("optimizer", "inner_optimizer")


def settings(compiled: Any) -> dict[str, Any]:
    """Hyperparameters in a `compile_config` (Keras 3) or a `training_config` (the older form)."""
    if not isinstance(compiled, Mapping):
        return {}
    found: dict[str, Any] = {}
    given = compiled.get("optimizer", compiled.get("optimizer_config"))
    for _ in range(4):  # an optimizer may wrap another one
        config = given.get("config") if isinstance(given, Mapping) else None
        if not isinstance(config, Mapping):
            break
        inner = next((config[key] for key in _INNER if key in config), None)
        if not is_model(inner):
            break
        given = inner
    if isinstance(given, str):
        found["optimizer"] = _text(given)
    elif isinstance(given, Mapping) and isinstance(given.get("class_name"), str):
        found["optimizer"] = _text(given["class_name"].rpartition(">")[2])
        _flatten(given.get("config"), "", found)
    for key in ("loss", "metrics", "weighted_metrics", "loss_weights"):
        value = _named(compiled.get(key))
        if value not in (None, [], ""):
            found[key] = value
    return dict(list(found.items())[:MOST_SETTINGS])


def _flatten(config: Any, prefix: str, flat: dict[str, Any]) -> None:
    for key, value in config.items() if isinstance(config, Mapping) else ():
        if key in ("name", "jit_compile", "is_legacy_optimizer") or not isinstance(key, str):
            continue
        name = prefix + _text(key)
        if is_model(value) and not prefix:  # a schedule of the learning rate
            flat[f"{name}.schedule"] = _text(str(value["class_name"]).rpartition(">")[2])
            _flatten(value["config"], f"{name}.", flat)
        elif (plain := _plain(value)) is not None:
            flat[name] = plain
        elif isinstance(value, list) and 0 < len(value) <= 64:
            items = [_plain(item) for item in value]
            if None not in items:
                flat[name] = items


def _plain(value: Any) -> Any:
    if isinstance(value, bool) or whole(value):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return _text(value) if isinstance(value, str) else None


def _text(value: str) -> str:
    return value[:_MOST_TEXT].encode("utf-8", "replace").decode("utf-8")


def _named(value: Any) -> Any:
    """Losses and metrics by name, alone or in lists."""
    if isinstance(value, Mapping):
        if is_model(value):
            name = value["config"] if value["class_name"] == "function" else value["class_name"]
            return _text(str(name).rpartition(">")[2])
        items = {_text(str(key)): _named(item) for key, item in list(value.items())[:64]}
        return [f"{key}={item}" for key, item in items.items() if item is not None]
    if isinstance(value, list):
        found = [_named(item) for item in value[:64]]
        return [item if isinstance(item, str) else str(item) for item in found if item is not None]
    return _plain(value)
