"""Programs saved by torch.export.save (.pt2), read without torch and without running any of it.

A zip: the graph as JSON, of which nothing is believed, and the tensors as raw storages. Skeleton:
that of torch files.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

from dlv.adapters import archive, splice
from dlv.adapters.archive import STORED, Entry
from dlv.adapters.aten.network import convert
from dlv.adapters.aten.record import (
    BUFFER,
    CONSTANT,
    INPUT,
    PARAMETER,
    Argument,
    Call,
    Given,
    Graph,
    Placeholder,
    Ref,
    Tagged,
    Value,
    place,
)
from dlv.adapters.checkpoint import Checkpoint, Tensor
from dlv.adapters.source import Source, opened
from dlv.adapters.torch.tensors import DTYPES, Storages, View, add_skeleton
from dlv.canonical import NON_FINITE, read_json
from dlv.dtypes import ITEM_BYTES
from dlv.errors import Damaged, NewerFormat, UnsafeInput, UsageError
from dlv.network.fields import FieldError, label, shown, whole
from dlv.network.sizes import MAX_RANK, Dim, Shape

SCHEMA = 8
_OTHER = "other"
# torch's numbers of dtypes in this format: the name here.
DTYPE_NUMBERS = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    9: "raw:complex32",
    10: "complex64",
    11: "complex128",
    12: "bool",
    13: "bfloat16",
    28: "uint16",
    29: "float8_e4m3",
    30: "float8_e5m2",
    31: "float8_e4m3fnuz",
    32: "float8_e5m2fnuz",
    33: "float8_e8m0",
    34: "uint32",
    35: "uint64",
}
_LAYOUTS = {
    1: "sparse_coo",
    2: "sparse_csr",
    3: "sparse_csc",
    4: "sparse_bsr",
    5: "sparse_bsc",
    6: "_mkldnn",
    7: "strided",
}
_MEMORY_FORMATS = {
    1: "contiguous_format",
    2: "channels_last",
    3: "channels_last_3d",
    4: "preserve_format",
}
_SYMBOL = re.compile(r"Symbol\('(\w+)'(?:, \w+=\w+)*\)")
_INTEGER = re.compile(r"Integer\((-?[0-9]{1,18})\)")


def graph_of(program: Any) -> Graph:
    """The graph of a program: everything in its JSON is checked on the way."""
    version = entry_of(program, "schema_version", dict)
    major = version.get("major")
    if major != SCHEMA:
        raise NewerFormat(
            f"exported programs of format {shown(major)} are unknown to this dlv version",
            why=f"it reads format {SCHEMA}",
        )
    module = entry_of(program, "graph_module", dict)
    held, signature = entry_of(module, "graph", dict), entry_of(module, "signature", dict)
    graph = _values(held)
    for spec in entry_of(signature, "input_specs", list):
        graph.placeholders.append(_placeholder(spec, graph))
    for node in entry_of(held, "nodes", list):
        graph.calls.append(_call(node, graph))
    for spec in entry_of(signature, "output_specs", list):
        kind, content = _union(spec)
        if kind in ("user_output", "loss_output"):
            found = entry_of(content, "arg", dict)
            graph.outputs.append(
                Ref(name_in(entry_of(found, "name", str)))
                if kind == "loss_output"
                else _argument(found, graph)
            )
    return graph


def _values(held: Any) -> Graph:
    """A graph that knows its values, and nothing else yet."""
    graph = Graph()
    for name, meta in entry_of(held, "tensor_values", dict).items():
        graph.values[name_in(name)] = tensor_value(meta)
    for name, number in entry_of(held, "sym_int_values", dict).items():
        graph.values[name_in(name)] = Value(None, (dim_of(number),))
    for key in ("sym_bool_values", "sym_float_values"):
        for name in entry_of(held, key, dict, {}):
            graph.values[name_in(name)] = Value(None, (None,))
    return graph


def _inner(content: Any, graph: Graph) -> Argument:  # noqa: ARG001
    """A graph that a call is given."""
    held = entry_of(content, "graph", dict)
    inner = _values(held)
    for given in entry_of(held, "inputs", list):
        ref = _argument(given, inner)
        if not isinstance(ref, Ref):
            raise _damaged("an inner graph takes what is not a value")
        inner.placeholders.append(Placeholder(ref.name, _OTHER, ""))
    for node in entry_of(held, "nodes", list):
        inner.calls.append(_call(node, inner))
    inner.outputs = [_argument(each, inner) for each in entry_of(held, "outputs", list)]
    return Tagged("graph", inner)


def entry_of(data: Any, key: str, kind: type, default: Any = None) -> Any:
    """An entry of an object, of the kind that it has to be."""
    if not isinstance(data, dict):
        raise _damaged(f"{shown(data)} found instead of an object with {key!r} should")
    value = data.get(key, default)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _damaged(f"{key!r} is {shown(value)}")
    return value


def name_in(value: Any) -> str:
    """A name."""
    try:
        return label(value, "a name in an exported program")
    except FieldError as error:
        raise _damaged(error.message) from error


def tensor_value(meta: Any) -> Value:
    """What is known of a tensor."""
    sizes = entry_of(meta, "sizes", list)
    if len(sizes) > MAX_RANK:
        raise _damaged(f"a tensor of {len(sizes)} axes")
    shape = tuple(dim_of(size) for size in sizes)
    return Value(dtype_of(meta.get("dtype")), shape, _dense(shape, meta.get("strides")))


def _dense(shape: Shape, strides: Any) -> bool | None:
    """Whether elements lie one behind the other; None where lengths that are open decide."""
    if not isinstance(strides, list) or len(strides) != len(shape):
        return None
    step: int | None = 1
    for length, stride in zip(
        reversed(shape), reversed([dim_of(each) for each in strides]), strict=True
    ):
        if length == 1:
            continue
        if step is None or not isinstance(stride, int):
            return None
        if stride != step:
            return False
        step = step * length if isinstance(length, int) else None
    return True


def dtype_of(number: Any) -> str:
    if not whole(number) or number < 1:
        raise _damaged(f"the dtype {shown(number)}")
    return DTYPE_NUMBERS.get(number, f"raw:torch {number}")


def dim_of(size: Any) -> Dim:
    """A length: a number, the name of a symbol, or None for what is computed from some."""
    kind, content = _union(size)
    if kind == "as_int":
        return _whole(content)
    expression = entry_of(content, "expr_str", str)
    symbol, integer = _SYMBOL.fullmatch(expression), _INTEGER.fullmatch(expression)
    if integer:
        return int(integer[1])
    return symbol[1] if symbol else None


def _damaged(why: str) -> Damaged:
    return Damaged("an exported program is corrupt", why=why)


def _union(data: Any) -> tuple[str, Any]:
    """The one entry of an object that says what it is."""
    if not isinstance(data, dict) or len(data) != 1:
        raise _damaged(f"{shown(data)} is not one thing")
    return next(iter(data.items()))


def _whole(value: Any) -> int:
    if not whole(value):
        raise _damaged(f"the number {shown(value)}")
    number: int = value
    return number


def _placeholder(spec: Any, graph: Graph) -> Placeholder:
    kind, content = _union(spec)
    if kind in ("parameter", "buffer", "tensor_constant"):
        name = name_in(entry_of(entry_of(content, "arg", dict), "name", str))
        if kind == "parameter":
            return Placeholder(name, PARAMETER, name_in(entry_of(content, "parameter_name", str)))
        if kind == "tensor_constant":
            return Placeholder(
                name, CONSTANT, name_in(entry_of(content, "tensor_constant_name", str))
            )
        sort = BUFFER if entry_of(content, "persistent", bool) else CONSTANT
        return Placeholder(name, sort, name_in(entry_of(content, "buffer_name", str)))
    if kind == "user_input":
        given = _argument(entry_of(content, "arg", dict), graph)
        if isinstance(given, Ref):
            return Placeholder(given.name, INPUT, given.name)
        return Placeholder(f"input {len(graph.placeholders)}", _OTHER, "")
    return Placeholder(f"{kind} {len(graph.placeholders)}", _OTHER, "")


def _call(node: Any, graph: Graph) -> Call:
    target = name_in(entry_of(node, "target", str))
    given = []
    for entry in entry_of(node, "inputs", list):
        name = entry_of(entry, "name", str)
        value = _argument(entry_of(entry, "arg", dict), graph)
        given.append(Given(name_in(name) if name else "", value, entry.get("kind") == 2))
    outputs: list[str | None] = []
    entries = entry_of(node, "outputs", list)
    several = len(entries) > 1 or node.get("is_hop_single_tensor_return") is False
    for entry in entries:
        kind, content = _union(entry)
        several = several or kind == "as_tensors"
        outputs += _names(kind, content)
    name = node.get("name") or next((each for each in outputs if each), target)
    stack = entry_of(node, "metadata", dict).get("nn_module_stack", "")
    visit, path = _last(stack) if isinstance(stack, str) else ("", "")
    op = target.removeprefix("torch.ops.").removeprefix("_")
    return Call(name_in(name), op, tuple(given), tuple(outputs), several, *place(path, visit))


def _names(kind: str, content: Any) -> list[str | None]:
    """The values that an output stands for."""
    if kind == "as_none":
        return [None]
    if kind == "as_tensors" and isinstance(content, list):
        return [name_in(entry_of(each, "name", str)) for each in content]
    for key in ("name", "as_name"):
        if isinstance(content, dict) and key in content:
            return [name_in(content[key])]
    raise _damaged(f"an output is {shown(kind)}")


def _last(stack: str) -> tuple[str, str]:
    """The innermost module: which visit of it, and its path."""
    parts = stack.rpartition(";")[2].split(",", 2)
    if len(parts) < 3:
        return "", ""
    if parts[1]:
        name_in(parts[1])
    return parts[0], parts[1]


def _argument(data: Any, graph: Graph) -> Argument:
    kind, content = _union(data)
    if kind in _ARGUMENTS:
        return _ARGUMENTS[kind](content, graph)
    if kind in _LISTS and isinstance(content, list):
        return [_ARGUMENTS[_LISTS[kind]](each, graph) for each in content]
    if kind in ("as_nested_tensors", "as_int_lists", "as_float_lists"):
        if not isinstance(content, list) or not all(isinstance(each, list) for each in content):
            raise _damaged(f"a list of lists is {shown(content)}")
        inner = {"n": "as_tensor", "i": "as_int", "f": "as_float"}[kind[3]]
        return [[_ARGUMENTS[inner](each, graph) for each in one] for one in content]
    if isinstance(kind, str) and kind.startswith("as_"):
        return Tagged("text", kind[3:])
    raise _damaged(f"an argument is {shown(kind)}")


def _reference(content: Any, graph: Graph) -> Argument:
    name = name_in(entry_of(content, "name", str))
    return Ref(name) if name in graph.values else Tagged("text", name)


def _symbolic(content: Any, graph: Graph) -> Argument:
    kind, value = _union(content)
    if kind == "as_name":
        return _reference({"name": value}, graph)
    return _ARGUMENTS[kind](value, graph) if kind in ("as_int", "as_float", "as_bool") else None


def _optional(content: Any, graph: Graph) -> Argument:
    kind, value = _union(content)
    return _reference(value, graph) if kind == "as_tensor" else None


def _integer(content: Any, graph: Graph) -> Argument:  # noqa: ARG001
    return _whole(content)


def _float(content: Any, graph: Graph) -> Argument:  # noqa: ARG001
    if isinstance(content, str) and content in NON_FINITE:
        return NON_FINITE[content]
    if type(content) is float or whole(content):
        return float(content)
    raise _damaged(f"the number {shown(content)}")


def _boolean(content: Any, graph: Graph) -> Argument:  # noqa: ARG001
    if not isinstance(content, bool):
        raise _damaged(f"a truth value is {shown(content)}")
    return content


def _string(content: Any, graph: Graph) -> Argument:  # noqa: ARG001
    return name_in(content) if content != "" else ""


def _device(content: Any, graph: Graph) -> Argument:  # noqa: ARG001
    kind, index = entry_of(content, "type", str), content.get("index")
    return Tagged("device", name_in(kind) if index is None else f"{name_in(kind)}:{_whole(index)}")


def _complex(content: Any, graph: Graph) -> Argument:
    return Tagged("complex", [_float(content.get(key), graph) for key in ("real", "imag")])


def _listed(kind: str, names: dict[int, str]) -> Callable[[Any, Graph], Argument]:
    def read_one(content: Any, graph: Graph) -> Argument:  # noqa: ARG001
        number = _whole(content)
        return Tagged(kind, names.get(number, f"torch {number}"))

    return read_one


_ARGUMENTS: dict[str, Callable[[Any, Graph], Argument]] = {
    "as_none": lambda content, graph: None,  # noqa: ARG005
    "as_tensor": _reference,
    "as_optional_tensor": _optional,
    "as_int": _integer,
    "as_float": _float,
    "as_bool": _boolean,
    "as_string": _string,
    "as_sym_int": _symbolic,
    "as_sym_float": _symbolic,
    "as_sym_bool": _symbolic,
    "as_scalar_type": lambda content, graph: Tagged("dtype", dtype_of(content)),  # noqa: ARG005
    "as_memory_format": _listed("memory_format", _MEMORY_FORMATS),
    "as_layout": _listed("layout", _LAYOUTS),
    "as_device": _device,
    "as_complex": _complex,
    "as_graph": _inner,
}
_LISTS = {
    "as_tensors": "as_tensor",
    "as_optional_tensors": "as_optional_tensor",
    "as_ints": "as_int",
    "as_floats": "as_float",
    "as_bools": "as_bool",
    "as_strings": "as_string",
    "as_sym_ints": "as_sym_int",
    "as_sym_floats": "as_sym_float",
    "as_sym_bools": "as_sym_bool",
}


FORMAT = "pt2"
SUFFIX = ".pt2"

MOST_JSON_BYTES = 48 << 20
_MOST_DEPTH = 48
_LARGEST = 1 << 62
_ITEMS = {here: (item_bytes, swap) for here, item_bytes, swap in DTYPES.values()}


def open(path: str) -> Checkpoint:  # noqa: A001 (the name in the Adapter protocol)
    """The tensors and the network of a saved program."""
    return opened(path, lambda file: _Program(file).checkpoint())


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
                    why="that form of exported programs is unknown here",
                    hint="save it again: torch.export.save(torch.export.load(FILE), FILE)",
                )
        if len(folders) > 1:
            shown = ", ".join(sorted(folders)[:4])
            raise UnsafeInput(f"{self.file.name} contains more than one folder", why=shown)
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
                f"{self.file.name} has no exported program",
                why="compiled code alone has no structure to read",
                hint="dlv add FILE --as file",
            )
        if len(names) > 1:
            raise UsageError(
                f"{self.file.name} contains several programs",
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
            graph = graph_of(program)
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
            raise Damaged(f"{self.file.name} is corrupt", why=error.why) from error
        except ValueError as error:  # what canonical JSON does not take
            raise Damaged(f"{self.file.name} is corrupt", why=str(error)) from error

    def _state(self, model: str, graph: Graph, checkpoint: Checkpoint) -> list[View]:
        """The tensors that state_dict names."""
        views: list[View] = []
        ties: dict[str, str] = {}
        state = {}
        for name, meta in self._config("weights", model).items():
            view = self._view("weights", name, meta)
            tied = self.storages.tied(view, name)
            if tied is not None:
                ties[name] = tied
            role = "weight" if meta.get("is_param") is True else "buffer"
            state[name] = (view.dtype, view.shape)
            views.append(view)
            checkpoint.tensors.append(self.storages.tensor(view, name, role, tied))
        graph.state, graph.ties = state, ties
        for placeholder in graph.placeholders:
            if placeholder.kind in ("parameter", "buffer") and placeholder.target not in state:
                raise Damaged(f"{self.file.name} lacks the tensor {placeholder.target}")
        return views

    def _constants(self, model: str, graph: Graph, checkpoint: Checkpoint) -> dict[str, Tensor]:
        wanted = {p.target for p in graph.placeholders if p.kind == CONSTANT}
        result = {}
        config = self._config("constants", model)
        for name in sorted(wanted):
            if name not in config:
                raise Damaged(f"{self.file.name} lacks the constant {name}")
            view = self._view("constants", name, config[name])
            self.storages.count(view, name)
            result[name] = self.storages.tensor(view, name, "buffer")
        others = len(config) - len(result)
        if others:
            checkpoint.notes.append(f"{others} constants that no call uses are skipped")
        return result

    def _config(self, kind: str, model: str) -> dict[str, Any]:
        name = f"data/{kind}/{model}_{kind}_config.json"
        config: dict[str, Any] = entry_of(self._json(name), "config", dict)
        for each in config:
            name_in(each)
        return config

    def _view(self, kind: str, name: str, meta: Any) -> View:
        """A tensor as a window on the storage that holds it."""
        if entry_of(meta, "use_pickle", bool):
            raise UsageError(
                f"tensor {name!r} is kept as a pickle",
                why="it is of a class of its own, and reading it means running code",
                hint="save the model with plain tensors, or dlv add FILE --as file",
            )
        entry = self.entries.get(f"data/{kind}/{entry_of(meta, 'path_name', str)}")
        if entry is None:
            raise Damaged(f"the storage of tensor {name!r} is missing")
        if entry.method != STORED:
            raise UnsafeInput(
                f"{entry.name} in {self.file.name} is compressed", why="torch stores plain bytes"
            )
        described = entry_of(meta, "tensor_meta", dict)
        dtype = dtype_of(described.get("dtype"))
        if dtype not in _ITEMS or (dtype not in ITEM_BYTES and not dtype.startswith("raw:")):
            raise UsageError(f"tensor {name!r} has the dtype {dtype}", why="dlv knows no such")
        if described.get("layout", 7) != 7:
            raise UsageError(f"tensor {name!r} is not dense", why="dlv stores dense tensors")
        shape = tuple(self._length(size, name) for size in entry_of(described, "sizes", list))
        strides = tuple(self._length(step, name) for step in entry_of(described, "strides", list))
        offset = self._length(entry_of(described, "storage_offset", dict), name)
        size, swap = _ITEMS[dtype]
        if len(shape) != len(strides) or len(shape) > 64 or math.prod(shape) * size >= _LARGEST:
            raise UnsafeInput(f"tensor {name!r} has an impossible shape", why=str(shape)[:80])
        needed = splice.extent(shape, strides)
        if needed and (offset + needed) * size > entry.size:
            raise UnsafeInput(
                f"tensor {name!r} does not fit its storage",
                why=f"it reaches element {offset + needed} of {entry.size // size}",
            )
        return View(dtype, size, swap, entry, offset, shape, strides)

    def _length(self, size: Any, name: str) -> int:
        found: Any = size.get("as_int") if isinstance(size, dict) else None
        if not whole(found) or not 0 <= found < _LARGEST:
            raise UnsafeInput(f"tensor {name!r} has a length that is not a number")
        return int(found)


restore = splice.restore


def save(out: BinaryIO, tensors: Sequence[Tensor], metadata: dict[str, str]) -> None:  # noqa: ARG001
    """Tensors alone are no program."""
    raise UsageError(
        "dlv writes no .pt2 files of its own",
        why="a program is more than its tensors",
        hint="export as .pt or .safetensors",
    )
