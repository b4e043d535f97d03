"""Names of the tensors in Keras' HDF5 files: path of the layer, then the variable.

Keras 3 numbers variables (`layers/dense_1/vars/0`) and names groups by class; which variable
that is follows from the settings. The older form names them itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from dlv.adapters.hdf5.file import Contents, Dataset
from dlv.adapters.keras.config import Layer, Model
from dlv.dataclass import dataclass
from dlv.errors import Damaged

Path = tuple[str, ...]

_CONTAINERS = ("layers", "_layer_checkpoint_dependencies")
_STATISTICS = ("moving_mean", "moving_variance", "moving_var")
_HEADS = {
    "query_dense": "query",
    "key_dense": "key",
    "value_dense": "value",
    "output_dense": "attention_output",
}
_ATTENTION = ("MultiHeadAttention", "GroupQueryAttention", "GroupedQueryAttention")
_CELLS = ("LSTM", "GRU", "SimpleRNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D")
# What Keras 2 called some variables.
_MOST_LISTED = 5
_OLDER = {"depthwise_kernel": "kernel", "moving_var": "moving_variance"}


@dataclass(frozen=True)
class Leaf:
    """A layer with variables of its own, and its group in a file of Keras 3."""

    path: Path
    variables: tuple[str, ...]
    group: str


@dataclass
class Found:
    """The tensors of a file: name, data set, role; and by layer and variable."""

    tensors: list[tuple[str, Dataset, str]] = field(default_factory=list)
    variables: dict[Path, dict[str, str]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    misnamed: str | None = None  # a layer whose group says that it is another's

    def add(self, name: str, dataset: Dataset, role: str) -> str:
        if name in self.names:
            name = dataset.path
        while name in self.names:
            name += "_"
        self.names.add(name)
        self.used.add(dataset.path)
        self.tensors.append((name, dataset, role))
        return name


class Names:
    """Which tensor holds a variable of a layer; by convention where the file has none."""

    def __init__(self, known: Mapping[Path, Mapping[str, str]]) -> None:
        self.known = known
        self.below: dict[Path, dict[str, str]] = {}
        for path, variables in known.items():
            for end in range(1, len(path) + 1):
                below = self.below.setdefault(path[:end], {})
                for variable, tensor in variables.items():
                    below[".".join((*path[end:], variable))] = tensor

    def __call__(self, path: Path, variable: str) -> str:
        tensor = self.known.get(path, {}).get(variable)
        return tensor if tensor is not None else ".".join((*path, variable))

    def slots(self, path: Path) -> dict[str, str]:
        return dict(self.below.get(path, {}))


def variables(layer: Layer) -> tuple[str, ...]:
    """The variables of one of Keras' own layers, in the order in which it keeps them."""
    kind, config = layer.kind, layer.config
    bias = ("bias",) if config.get("use_bias", True) else ()
    affine = tuple(
        name for name, key in (("gamma", "scale"), ("beta", "center")) if config.get(key, True)
    )
    if kind.startswith("SeparableConv"):
        return ("depthwise_kernel", "pointwise_kernel", *bias)
    if re.fullmatch(r"(Depthwise)?Conv[123]D(Transpose)?|Dense", kind):
        return ("kernel", *bias)
    if kind == "EinsumDense":
        return ("kernel", "bias") if config.get("bias_axes") else ("kernel",)
    if kind == "BatchNormalization":
        return (*affine, "moving_mean", "moving_variance")
    if kind in ("LayerNormalization", "GroupNormalization"):
        return affine
    if kind.endswith("Cell") and kind.removesuffix("Cell") in _CELLS:
        return ("kernel", "recurrent_kernel", *bias)
    if kind == "Normalization":
        return ("mean", "variance", "count") if config.get("mean") is None else ()
    if kind == "LayerScale":
        return ("gamma",)
    single = {"Embedding": "embeddings", "PReLU": "alpha", "RMSNormalization": "scale"}
    return (single[kind],) if kind in single else ()


def leaves(model: Model, path: Path = (), group: str = "") -> Iterator[Leaf]:
    """Every layer that can have variables, in the order of the model."""
    counts: dict[str, int] = {}
    for layer in model.layers:
        word = snake(layer.kind)
        number = counts[word] = counts.get(word, -1) + 1
        below = f"{group}layers/{word}_{number}" if number else f"{group}layers/{word}"
        yield from _leaves(layer, (*path, layer.name), below)


def layer_leaves(layer: Layer) -> Iterator[Leaf]:
    """The same of one layer alone; groups are below its own."""
    yield from _leaves(layer, (layer.name,), "")


def _leaves(layer: Layer, path: Path, group: str) -> Iterator[Leaf]:
    if layer.model is not None:
        yield from leaves(layer.model, path, f"{group}/")
        return
    yield Leaf(path, variables(layer) if layer.known else (), group)
    if not layer.known:
        return
    inner = layer.inner.get("layer")
    if layer.kind in _CELLS:
        cell = Layer(f"{layer.kind}Cell", f"{snake(layer.kind)}_cell", layer.config, [])
        yield Leaf((*path, cell.name), variables(cell), f"{group}/cell")
    elif layer.kind in _ATTENTION:
        bias = ("bias",) if layer.config.get("use_bias", True) else ()
        for attribute, name in _HEADS.items():
            yield Leaf((*path, name), ("kernel", *bias), f"{group}/{attribute}")
    elif layer.kind == "Bidirectional" and inner is not None:
        other = layer.inner.get("backward_layer", inner)
        for way, each in (("forward", inner), ("backward", other)):
            base = re.sub("^(forward|backward)_", "", each.name)
            yield from _leaves(each, (*path, f"{way}_{base}"), f"{group}/{way}_layer")
    elif inner is not None:
        yield from _leaves(inner, (*path, inner.name), f"{group}/layer")
    elif "cell" in layer.inner:
        cell = layer.inner["cell"]
        yield from _leaves(cell, (*path, cell.name), f"{group}/cell")


def snake(name: str) -> str:
    """Keras' own rule for the names of groups."""
    name = re.sub(r"\W+", "", name)
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


def numbered(contents: Contents, model: Model | None) -> Found:
    """A file of Keras 3: those of the model's layers first, then what else is there."""
    found = Found()
    by_group: dict[str, list[Dataset]] = {}
    for dataset in contents.datasets.values():
        by_group.setdefault(dataset.path.rpartition("/")[0], []).append(dataset)
    older = _CONTAINERS[1] in contents.groups
    owners: dict[str, Path] = {}
    for leaf in leaves(model) if model is not None else ():
        group = leaf.group.replace(*_CONTAINERS) if older else leaf.group
        owners[group] = leaf.path
        held = sorted(by_group.get(f"{group}/vars", ()), key=_number)
        if held and not _is_of(contents, group, leaf.path):
            found.misnamed = leaf.path[-1]
        for place, dataset in enumerate(held):
            key = dataset.path.rpartition("/")[2]
            known = place < len(leaf.variables) and key == str(place)
            variable = leaf.variables[place] if known else key
            role = "buffer" if variable in _STATISTICS else "weight"
            name = found.add(".".join((*leaf.path, variable)), dataset, role)
            found.variables.setdefault(leaf.path, {})[variable] = name
    rest = [dataset for path, dataset in contents.datasets.items() if path not in found.used]
    for dataset in sorted(rest, key=lambda each: (each.path.startswith("optimizer/"), _key(each))):
        role = "optimizer" if dataset.path.startswith("optimizer/") else "weight"
        if "seed_generator" in dataset.path:
            role = "extra"
        path = _below(owners, dataset.path)
        if path is None:
            found.add(_dotted(contents, dataset.path), dataset, role)
            continue
        name = found.add(".".join(path), dataset, role)
        found.variables.setdefault(path[:-1], {})[path[-1]] = name
    return found


def _is_of(contents: Contents, group: str, path: Path) -> bool:
    """Whether a group is of the layer at this path, as far as it says.

    Keras counts layers in an order of its own; those within wrappers may have other names there.
    """
    own = contents.groups.get(f"{group}/vars", {}).get("name")
    plain = set(group.split("/")[::2]) == {"layers"} and group.count("/") == 2 * len(path) - 1
    return not own or not plain or list(own) == [path[-1]]


def _below(owners: Mapping[str, Path], path: str) -> Path | None:
    """The place of a variable within the layer that owns it, at whatever depth."""
    parts = path.split("/")
    for end in range(len(parts) - 1, 0, -1):
        owner = owners.get("/".join(parts[:end]))
        if owner is not None:
            return (*owner, *(part for part in parts[end:-1] if part != "vars"), parts[-1])
    return None


def _number(dataset: Dataset) -> tuple[int, str]:
    key = dataset.path.rpartition("/")[2]
    return (int(key), key) if re.fullmatch("[0-9]{1,9}", key) else (1 << 30, key)


def _key(dataset: Dataset) -> tuple[str, tuple[int, str]]:
    return dataset.path.rpartition("/")[0], _number(dataset)


def _dotted(contents: Contents, path: str) -> str:
    """A path without the containers; layers in them by their own names, where these are kept."""
    parts = path.split("/")
    result = []
    for place, part in enumerate(parts):
        if place == len(parts) - 2 and part == "vars":
            continue
        if part in _CONTAINERS and place < len(parts) - 1:
            continue
        if place and parts[place - 1] in _CONTAINERS:
            own = contents.groups.get("/".join((*parts[: place + 1], "vars")), {}).get("name")
            part = own[0] if own and own[0] else part
        result.append(part)
    return ".".join(result)


def named(contents: Contents, model: Model | None, group: str) -> Found:
    """A file of the older form: `layer_names` of the model, `weight_names` of each layer."""
    found = Found()
    by_layer: dict[str, list[Leaf]] = {}
    for leaf in leaves(model) if model is not None else ():
        by_layer.setdefault(leaf.path[0], []).append(leaf)
    for layer in _list(contents.groups.get(group, {}), "layer_names"):
        base = f"{group}/{layer}" if group else layer
        held = _weights(contents, base)
        chosen = _match(by_layer.get(layer, ()), [name for name, _ in held])
        for name, dataset in held:
            leaf_variable = chosen.get(name)
            if leaf_variable is None:
                found.add(_within(layer, name), dataset, _role(name))
                continue
            leaf, variable = leaf_variable
            role = "buffer" if variable in _STATISTICS else "weight"
            tensor = found.add(".".join((*leaf.path, variable)), dataset, role)
            found.variables.setdefault(leaf.path, {})[variable] = tensor
    for name, dataset in _weights(contents, "optimizer_weights"):
        found.add("optimizer." + ".".join(_parts(name)), dataset, "optimizer")
    for path, dataset in contents.datasets.items():
        if path not in found.used:
            role = "optimizer" if path.startswith("optimizer_weights/") else "weight"
            found.add(path.replace("/", "."), dataset, role)
    return found


def _weights(contents: Contents, group: str) -> list[tuple[str, Dataset]]:
    held = []
    for name in _list(contents.groups.get(group, {}), "weight_names"):
        dataset = contents.datasets.get(f"{group}/{name}")
        if dataset is None:
            raise Damaged(f"the weight {name!r} of {group!r} is named, but not there")
        held.append((name, dataset))
    return held


def _list(attributes: Mapping[str, Sequence[str]], name: str) -> list[str]:
    """A list of names, which Keras cuts in numbered pieces when it is long."""
    if name in attributes:
        return list(attributes[name])
    result: list[str] = []
    for number in range(len(attributes)):
        piece = attributes.get(f"{name}{number}")
        if piece is None:
            break
        result += piece
    return result


def _parts(name: str) -> list[str]:
    return [part for part in re.sub(r":[0-9]+$", "", name).split("/") if part]


def _within(layer: str, name: str) -> str:
    """The name below its layer: what Keras wrote before the layer's own name is left out."""
    parts = _parts(name)
    start = parts.index(layer) if layer in parts else None
    return ".".join([layer, *parts] if start is None else parts[start:])


def _role(name: str) -> str:
    return "buffer" if (_parts(name) or [""])[-1] in _STATISTICS else "weight"


def _match(held: Iterable[Leaf], names: Sequence[str]) -> dict[str, tuple[Leaf, str]]:
    """Which weight of a layer is which variable of which leaf."""
    chosen: dict[str, tuple[Leaf, str]] = {}
    waiting: dict[tuple[str, str], list[str]] = {}
    loose: dict[str, list[str]] = {}
    for name in reversed(names):
        parts = ["", *_parts(name)]
        last = _OLDER.get(parts[-1], parts[-1])
        waiting.setdefault((parts[-2], last), []).append(name)
        waiting.setdefault((parts[-2], parts[-1]), []).append(name)
        for word in {last, parts[-1]}:
            loose.setdefault(word, []).append(name)
    leaves_held = list(held)
    for strict in (True, False):
        for leaf in leaves_held:
            done = {variable for each, variable in chosen.values() if each == leaf}
            for variable in leaf.variables:
                stack = waiting.get((leaf.path[-1], variable)) if strict else loose.get(variable)
                while variable not in done and stack:
                    name = stack.pop()
                    if name not in chosen:
                        chosen[name] = (leaf, variable)
                        break
    if not chosen and len(names) == len(leaves_held) == 1 and len(leaves_held[0].variables) == 1:
        # A variable without a name of its own is called by a number.
        chosen[names[0]] = (leaves_held[0], leaves_held[0].variables[0])
    return chosen


def listed(names: Sequence[str]) -> str:
    """The first names of a list and how many more there are, as a note says it."""
    more = len(names) - _MOST_LISTED
    return ", ".join(names[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "")
