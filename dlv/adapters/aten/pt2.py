"""Programs saved by torch.export.save (.pt2), read without torch and without running any of it.

A zip: the graph as JSON, the tensors as raw storages. Skeleton: that of torch files.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, BinaryIO

from dlv.adapters import archive, splice, strided
from dlv.adapters.archive import STORED, Entry
from dlv.adapters.aten import pt2_graph
from dlv.adapters.aten.network import convert
from dlv.adapters.aten.pt2_graph import item
from dlv.adapters.aten.record import CONSTANT, Graph
from dlv.adapters.checkpoint import Checkpoint, Tensor
from dlv.adapters.source import Source
from dlv.adapters.torch.tensors import DTYPES, Storages, View, add_skeleton
from dlv.canonical import read_json
from dlv.dtypes import ITEM_BYTES
from dlv.errors import Damaged, UnsafeInput, UsageError
from dlv.network.fields import whole

FORMAT = "pt2"
SUFFIX = ".pt2"

MOST_JSON_BYTES = 48 << 20
_MOST_DEPTH = 48
_MOST_REPEATS = 16  # bytes read by all tensors together, in file sizes
_FREE_BYTES = 64 << 20
_LARGEST = 1 << 62
_ITEMS = {here: (item_bytes, swap) for here, item_bytes, swap in DTYPES.values()}


def open(path: str) -> Checkpoint:  # noqa: A001 (the name in the Adapter protocol)
    """The tensors and the network of a saved program."""
    file = Source(path)
    try:
        return _Program(file).checkpoint()
    except BaseException:
        file.close()
        raise


class _Program:
    def __init__(self, file: Source) -> None:
        self.file = file
        self.entries = self._content()
        order = b"little"
        if "byteorder" in self.entries:
            order = bytes(archive.read(file, self.entries["byteorder"], 64))
        if order not in (b"little", b"big"):
            raise Damaged(f"{file.name} has an unknown byte order", why=repr(order[:20]))
        self.storages = Storages(file, {}, big=order == b"big", verify=True)
        self.total = 0

    def _content(self) -> dict[str, Entry]:
        """Entries by name, without the folder that is around all of them."""
        entries: dict[str, Entry] = {}
        folders = set()
        for entry in archive.read_directory(self.file):
            folder, _, name = entry.name.partition("/")
            folders.add(folder)
            entries[name] = entry
            if entry.name == "serialized_exported_program.json":
                raise UsageError(
                    f"{self.file.name} was saved by torch before 2.8",
                    why="that form of exported programs is not known here",
                    hint="save it again: torch.export.save(torch.export.load(FILE), FILE)",
                )
        if len(folders) > 1:
            shown = ", ".join(sorted(folders)[:4])
            raise UnsafeInput(f"{self.file.name} holds more than one folder", why=shown)
        if "archive_format" not in entries:
            raise Damaged(f"{self.file.name} is not an exported program", why="no archive_format")
        return entries

    def _model(self) -> str:
        """The name of the one program in the file."""
        names = [
            name.removeprefix("models/").removesuffix(".json")
            for name in self.entries
            if name.startswith("models/") and name.endswith(".json")
        ]
        if not names:
            raise UsageError(
                f"{self.file.name} holds no exported program",
                why="compiled code alone has no structure to read",
                hint="dlv add FILE --as file",
            )
        if len(names) > 1:
            raise UsageError(
                f"{self.file.name} holds several programs",
                why=", ".join(sorted(names)[:4]),
                hint="save each in a file of its own",
            )
        return names[0]

    def _json(self, name: str) -> Any:
        entry = self.entries.get(name)
        if entry is None:
            raise Damaged(f"{self.file.name} has no {name}")
        data = bytes(archive.read(self.file, entry, MOST_JSON_BYTES))
        where = f"{name} in {self.file.name}"
        return read_json(data, where, limit=MOST_JSON_BYTES, depth=_MOST_DEPTH)

    def checkpoint(self) -> Checkpoint:
        model = self._model()
        program = self._json(f"models/{model}.json")
        with self._named():
            graph = pt2_graph.read(program)
        found = Checkpoint(FORMAT, [], close=self.file.close)
        views = self._state(model, graph, found)
        constants = self._constants(model, graph, found)
        version = program.get("torch_version")
        origin = {"importer": "torch.pt2", "version": version if isinstance(version, str) else ""}
        del program
        with self._named():
            made = convert(graph, constants, origin)
            _ = made.network.id  # whether it can be stored
        found.network, found.constants = made.network, made.constants
        found.notes += made.notes
        add_skeleton(found, self.file, views, big=self.storages.big)
        return found

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """What is wrong with the graph, told with the file that it is from."""
        try:
            yield
        except Damaged as error:
            raise Damaged(f"{self.file.name} is damaged", why=error.why) from error
        except ValueError as error:  # what canonical JSON does not take
            raise Damaged(f"{self.file.name} is damaged", why=str(error)) from error

    def _state(self, model: str, graph: Graph, found: Checkpoint) -> list[View]:
        """The tensors that state_dict names."""
        views: list[View] = []
        first: dict[tuple[object, ...], str] = {}
        ties: dict[str, str] = {}
        state = {}
        for name, meta in self._config("weights", model).items():
            view = self._view("weights", name, meta)
            tied = first.setdefault(view.identity, name) if view.nbytes else name
            if tied != name:
                ties[name] = tied
            else:
                self._count(view, name)
            role = "weight" if meta.get("is_param") is True else "buffer"
            tensor = self._tensor(name, view, role, None if tied == name else tied)
            state[name] = (view.dtype, view.shape)
            views.append(view)
            found.tensors.append(tensor)
        graph.state, graph.ties = state, ties
        for placeholder in graph.placeholders:
            if placeholder.kind in ("parameter", "buffer") and placeholder.target not in state:
                raise Damaged(f"{self.file.name} lacks the tensor {placeholder.target}")
        return views

    def _constants(self, model: str, graph: Graph, found: Checkpoint) -> dict[str, Tensor]:
        wanted = {p.target for p in graph.placeholders if p.kind == CONSTANT}
        result = {}
        config = self._config("constants", model)
        for name in sorted(wanted):
            if name not in config:
                raise Damaged(f"{self.file.name} lacks the constant {name}")
            view = self._view("constants", name, config[name])
            self._count(view, name)
            result[name] = self._tensor(name, view, "buffer", None)
        others = len(config) - len(result)
        if others:
            found.notes.append(f"{others} constants that no call uses are left out")
        return result

    def _config(self, kind: str, model: str) -> dict[str, Any]:
        name = f"data/{kind}/{model}_{kind}_config.json"
        config: dict[str, Any] = item(self._json(name), "config", dict)
        for each in config:
            pt2_graph.text(each)
        return config

    def _count(self, view: View, name: str) -> None:
        self.total += view.nbytes
        if self.total > _MOST_REPEATS * self.file.size + _FREE_BYTES:
            raise UnsafeInput(
                f"the tensors of {self.file.name} are far larger than the file",
                why=f"{self.total} bytes up to {name!r}, {self.file.size} in the file",
            )

    def _tensor(self, name: str, view: View, role: str, tied: str | None) -> Tensor:
        read, part = partial(self.storages.read, view), self.storages.part(view)
        return Tensor(name, view.dtype, view.shape, view.nbytes, read, role, tied, part)

    def _view(self, kind: str, name: str, meta: Any) -> View:
        """A tensor as a window on the storage that holds it."""
        if item(meta, "use_pickle", bool):
            raise UsageError(
                f"tensor {name!r} is kept as a pickle",
                why="it is of a class of its own, and reading it means running code",
                hint="save the model with plain tensors, or dlv add FILE --as file",
            )
        entry = self.entries.get(f"data/{kind}/{item(meta, 'path_name', str)}")
        if entry is None:
            raise Damaged(f"the storage of tensor {name!r} is missing")
        if entry.method != STORED:
            raise UnsafeInput(
                f"{entry.name} in {self.file.name} is compressed", why="torch stores plain bytes"
            )
        what = item(meta, "tensor_meta", dict)
        dtype = pt2_graph.dtype(what.get("dtype"))
        if dtype not in _ITEMS or (dtype not in ITEM_BYTES and not dtype.startswith("raw:")):
            raise UsageError(f"tensor {name!r} has the dtype {dtype}", why="dlv knows no such")
        if what.get("layout", 7) != 7:
            raise UsageError(f"tensor {name!r} is not dense", why="dlv stores dense tensors")
        shape = tuple(self._length(size, name) for size in item(what, "sizes", list))
        strides = tuple(self._length(step, name) for step in item(what, "strides", list))
        offset = self._length(item(what, "storage_offset", dict), name)
        size, swap = _ITEMS[dtype]
        if len(shape) != len(strides) or len(shape) > 64 or math.prod(shape) * size >= _LARGEST:
            raise UnsafeInput(f"tensor {name!r} has an impossible shape", why=str(shape)[:80])
        needed = strided.extent(shape, strides)
        if needed and (offset + needed) * size > entry.size:
            raise UnsafeInput(
                f"tensor {name!r} does not fit its storage",
                why=f"it reaches element {offset + needed} of {entry.size // size}",
            )
        return View(dtype, size, swap, entry, offset, shape, strides)

    def _length(self, size: Any, name: str) -> int:
        found: Any = size.get("as_int") if isinstance(size, dict) else None
        if not whole(found) or not 0 <= found < _LARGEST:
            raise UnsafeInput(f"tensor {name!r} has a length that is no number")
        return int(found)


def restore(out: BinaryIO, skeleton: bytes, tensors: Sequence[Tensor]) -> None:
    """Write the file of `skeleton` again; `tensors` in the order `open` gave them."""
    splice.restore(out, skeleton, tensors)


def save(out: BinaryIO, tensors: Sequence[Tensor], metadata: dict[str, str]) -> None:  # noqa: ARG001
    """Tensors alone are no program."""
    raise UsageError(
        "dlv writes no .pt2 files of its own",
        why="a program is more than its tensors",
        hint="export as .pt or .safetensors",
    )
