"""`dlv show`: summarize a version, or print one of its files or its manifest."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from dlv.commands.shared.invocation import Invocation
from dlv.commands.shared.options import argument, command, option
from dlv.errors import UsageError
from dlv.terminal.output import Block, Fields

if TYPE_CHECKING:
    import dlv.versions.show as show


@command(
    "show",
    examples=[
        "dlv show lenet",
        "dlv show HEAD:train.py",
        "dlv show lenet@1 --tensor conv1.weight",
        "dlv show lenet@1 --manifest",
    ],
    exits={4: "no such version, checkpoint, file or tensor"},
)
@argument("reference", metavar="[REF[:FILE]]", default="HEAD", complete="reference")
@option("--tensor", "matrix", metavar="NAME", help="Show how a tensor is stored.")
@option("--manifest", is_flag=True, help="Print the manifest.")
def run(call: Invocation, reference: str, matrix: str | None, manifest: bool) -> None:
    """Summarize a version, or print one of its files.

    REF is a version such as lenet@2 or a checkpoint such as lenet@2/1000 [default: HEAD].
    REF:FILE prints the file as it was committed. For layers and tensors see dlv desc.
    """
    import dlv.versions.show as show

    repository, reference = call.look_at(reference)
    found = show.find(repository, reference)
    if (found.file is not None) + (matrix is not None) + manifest > 1:
        raise UsageError(":FILE, --tensor and --manifest cannot be combined")
    for note in found.notes:
        call.output.warn(note)
    version = {"version": found.version.label, "id": found.version.id}
    if found.file is not None:
        _file(call, version, show.file(repository, found))
    elif matrix is not None:
        _matrix(call, version, show.matrix(repository, found, matrix))
    elif manifest:
        data = show.manifest_bytes(repository, found)
        _raw(call, data, {"version": version, "manifest": json.loads(data)}, found.version.id)
    else:
        import dlv.views.versions as view

        shown = show.show(repository, found)
        document, blocks = view.shown_document(shown), view.shown_blocks(shown)
        call.output.emit("show", document, *blocks, ids=[version["id"]])


def _raw(call: Invocation, data: bytes, document: dict[str, Any], digest: str) -> None:
    if call.json or call.quiet:
        call.output.emit("show", document, ids=[digest])
    else:
        call.output.raw(data)


def _file(call: Invocation, version: dict[str, str], file: show.ShownFile) -> None:
    entry = file.entry
    record: dict[str, Any] = {"path": entry.path, "role": entry.role, "mode": entry.mode}
    record |= {"bytes": entry.bytes, "hash": entry.blake3}
    if call.json:
        try:
            record["text"] = file.data.decode("utf-8")
        except UnicodeDecodeError:
            record["base64"] = base64.b64encode(file.data).decode("ascii")
    _raw(call, file.data, {"version": version, "file": record}, entry.blake3)


def _matrix(call: Invocation, version: dict[str, str], matrix: show.ShownMatrix) -> None:
    import dlv.views.versions as view

    fields = view.stored_matrix(matrix)
    blocks: list[Block] = [Fields({k: v for k, v in fields.items() if v is not None})]
    if matrix.excerpt is not None:
        blocks += ["", matrix.excerpt]
    record = fields | {"shape": list(matrix.matrix.shape)}
    call.output.emit(
        "show", {"version": version, "tensor": record}, *blocks, ids=[matrix.matrix.hash]
    )
