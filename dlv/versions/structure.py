"""The network of a version while it is put together: given, staged, with weights, or carried."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import dlv.weights.catalogue as catalogue
from dlv.adapters.checkpoint import Checkpoint, Tensor
from dlv.errors import Conflict, UsageError
from dlv.kinds import Raw
from dlv.objects.manifest import NetworkReference

if TYPE_CHECKING:
    from dlv.network.graph import Network
    from dlv.network.verify import Problem
    from dlv.pas.footer import Encoding

Shapes = Mapping[str, tuple[str, tuple[int, ...]]]
MOST_WARNINGS = 8
# Counters that torch keeps beside a normalisation; no node computes with them.
_COUNTERS = ("num_batches_tracked",)


class Writer(Protocol):
    """Where objects and matrices go; a WeightWriter."""

    def add(self, dtype: str, shape: Sequence[int], raw: Raw) -> str: ...

    def add_object(self, kind: str, data: Raw) -> str: ...


class Store(Protocol):
    """What is stored already; a MatrixStore."""

    def encoding(self, matrix: str) -> Encoding | None: ...

    def object(self, kind: str, name: str) -> Raw: ...


@dataclass(frozen=True)
class Found:
    """A network that a file describes, with the description of its constants, stored by now."""

    where: str
    network: Network
    constants: list[dict[str, Any]]


@dataclass
class Structure:
    """The network of the version, if it has one."""

    network: Network | None = None
    reference: NetworkReference | None = None
    warnings: list[str] = field(default_factory=list)


def take(where: str, opened: Checkpoint, writer: Writer, store: Store) -> Found | None:
    """The network of an opened file; its constants are stored, as they can be read only now."""
    if opened.network is None:
        return None
    given = {tensor.name: tensor for tensor in opened.constants}
    constants = []
    for name, digest in opened.network.constants.items():
        if name in given:
            constants.append(_store(given[name], digest, where, writer))
            continue
        known = store.encoding(digest)
        if known is None:
            raise UsageError(
                f"the network of {where} needs the constant `{name}`, which is not stored here",
                why=f"matrix {digest[:12]}",
                hint="import the model itself instead of its network.json",
            )
        constants.append(
            {"name": name, "dtype": known.dtype, "shape": list(known.shape), "hash": digest}
        )
    shapes = {each["name"]: tuple(each["shape"]) for each in constants}
    return Found(where, replace(opened.network, constant_shapes=shapes), constants)


def _store(tensor: Tensor, digest: str, where: str, writer: Writer) -> dict[str, Any]:
    made = writer.add(tensor.dtype, tensor.shape, tensor.read())
    if made != digest:
        raise Conflict(
            f"the constant `{tensor.name}` of {where} is not what the network says",
            why=f"matrix {made[:12]} instead of {digest[:12]}",
        )
    return {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "hash": made,
    }


def settle(
    found: Sequence[Found], shapes: Shapes, writer: Writer, unused: Collection[str] = ()
) -> Structure:
    """The network that counts: `found` is in order of rank, one for each different network.

    `unused`: tensors that no network is expected to speak of.
    """
    import dlv.network.verify as verification

    chosen = found[0]
    result = Structure(
        chosen.network,
        NetworkReference(chosen.network.id, dict(chosen.network.origin or {}), chosen.constants),
    )
    others = [other.where for other in found[1:] if other.network.id != chosen.network.id]
    if others:
        result.warnings.append(
            f"the network is that of {chosen.where}; {', '.join(others[:3])} "
            f"describe{'s' if len(others) == 1 else ''} another one"
        )
    writer.add_object("network", chosen.network.encoded)
    problems = verification.verify(chosen.network, shapes or None)
    result.warnings += warnings_of(problems, unused)
    return result


def carry(reference: NetworkReference, shapes: Shapes, store: Store) -> Structure:
    """The parent's network stays as long as it still describes the weights."""
    import dlv.network.verify as verification

    network = catalogue.network(store, reference.id)
    problems = verification.verify(network, shapes) if shapes else []
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        return Structure(
            warnings=[
                "the network of the parent does not fit these weights and is left out: "
                + errors[0].message
            ]
        )
    return Structure(network, reference)


def warnings_of(problems: Sequence[Problem], unused: Collection[str] = ()) -> list[str]:
    """Errors first; tensors without a node in one line, counters not at all."""
    extra = [problem.seen for problem in problems if problem.rule == "extra"]
    rest = [problem for problem in problems if problem.rule != "extra"]
    rest.sort(key=lambda problem: problem.severity != "error")
    lines = [f"network: {problem}" for problem in rest[:MOST_WARNINGS]]
    if len(rest) > MOST_WARNINGS:
        lines.append(f"network: and {len(rest) - MOST_WARNINGS} more")
    named = [n for n in extra if n not in unused and n.rpartition(".")[2] not in _COUNTERS]
    if named:
        more = f" and {len(named) - 3} more" if len(named) > 3 else ""
        what = "the tensor" if len(named) == 1 else "the tensors"
        lines.append(f"network: no node uses {what} {', '.join(named[:3])}{more}")
    return lines
