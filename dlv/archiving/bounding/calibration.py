"""Rows to make a schedule with: of data that is given, of the version's own, or noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from pathlib import Path

import numpy as np

import dlv.evaluation.data as evaluation_data
from dlv.adapters.data.sets import Data, Wanted
from dlv.adapters.data.settings import Settings
from dlv.dataclass import dataclass
from dlv.errors import DlvError, UsageError
from dlv.evaluation.data import DataSource
from dlv.kinds import Array
from dlv.network.graph import Input, Network
from dlv.network.ops.op import op_of
from dlv.network.program import Program
from dlv.objects.manifest import Manifest
from dlv.repository.handle import Repository

ROWS = 96
_LENGTH = 16  # of an axis that the network leaves open
_SUFFIXES = (".npz", ".npy", ".csv")


@dataclass(frozen=True)
class Asked:
    """The data that was named, if any was, and how data is read; names are relative to a folder."""

    data: str | None = None
    settings: Settings = field(default_factory=Settings)
    directory: Path = Path()


@dataclass(frozen=True)
class Calibration:
    """Rows of every input; `source` says in a few words where they come from."""

    rows: dict[str, Array]
    source: str


def rows_for(
    repository: Repository, manifest: Manifest, program: Program, request: Asked
) -> Calibration:
    """What there is, best first. Data that was given must fit; the version's own may not."""
    inputs = _inputs(program)
    wanted = [Wanted(each.name, _row_shape(each)) for each in inputs]

    def opened(source: DataSource) -> dict[str, Array]:
        found = evaluation_data.open_source(
            repository, source, request.settings, wanted, request.directory
        )
        return _read(found, inputs)

    if request.data is not None:
        source = evaluation_data.find_data(repository, request.data, [], request.directory)
        return Calibration(opened(source), request.data)
    for entry in manifest.files:
        if entry.role == evaluation_data.ROLE and entry.path.endswith(_SUFFIXES):
            try:
                return Calibration(opened(DataSource(entry.path, entry)), entry.path)
            except DlvError:
                continue
    return Calibration(noise(program.network, inputs), "noise")


def _inputs(program: Program) -> list[Input]:
    named = {each.name: each for each in program.network.inputs}
    found = []
    for name in program.input_names:
        if name in named:
            found.append(named[name])
        else:
            node = program.network.node(name)
            found.append(Input(name, tuple(node.attrs["shape"]), node.attrs["dtype"]))
    return found


def _row_shape(item: Input) -> tuple[int | None, ...]:
    return tuple(size if isinstance(size, int) else None for size in item.shape[1:])


def _read(data: Data, inputs: Sequence[Input]) -> dict[str, Array]:
    """Rows from all over the data: those of one class often stand together."""
    places = np.unique(np.linspace(0, data.count - 1, min(ROWS, data.count)).round().astype(int))
    rows = {}
    for item in inputs:
        column = data.inputs[item.name]
        wanted = _row_shape(item)
        if len(column.shape) != len(wanted) or any(
            size not in (None, length) for size, length in zip(wanted, column.shape, strict=True)
        ):
            raise UsageError(
                f"the rows of {column.name} have another shape than the input `{item.name}`",
                why=f"they are {list(column.shape)}, the network wants {list(wanted)}",
            )
        rows[item.name] = np.concatenate([column.read(at, at + 1) for at in places.tolist()])
    return rows


def noise(network: Network, inputs: Sequence[Input]) -> dict[str, Array]:
    """The same for every run: what it is, is said, and it bounds nothing wrongly."""
    rng = np.random.default_rng(0)
    words = [node.attrs["rows"] for node in network.nodes if op_of(node).lookup]
    symbols: dict[str, int] = {}
    rows: dict[str, Array] = {}
    for item in inputs:
        sizes = [
            size if isinstance(size, int) else symbols.setdefault(str(size), _LENGTH)
            for size in item.shape[1:]
        ]
        if item.dtype.startswith(("float", "bfloat")):
            rows[item.name] = rng.standard_normal((ROWS, *sizes)).astype(np.float32)
        else:
            rows[item.name] = rng.integers(0, min(words, default=2), (ROWS, *sizes))
    return rows
