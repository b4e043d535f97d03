"""What is left of a file of raw storages without the tensors that lie in them."""

from __future__ import annotations

from dlv.adapters import splice, strided
from dlv.adapters.checkpoint import Checkpoint
from dlv.adapters.source import Source
from dlv.adapters.torch.tensors import View

MOST_LITERAL_BYTES = 32 << 20


def add_skeleton(checkpoint: Checkpoint, file: Source, views: list[View], *, big: bool) -> None:
    """Give the checkpoint what is left of the file without its tensors."""
    places = []
    for index, view in enumerate(views):
        unit = view.swap if big else 1
        if not view.nbytes:
            continue
        if view.contiguous:
            places.append((view.start, splice.Piece(index, 0, view.nbytes, "C", unit)))
        elif strided.is_contiguous(view.shape[::-1], view.strides[::-1]):
            places.append((view.start, splice.Piece(index, 0, view.nbytes, "F", unit)))
    places.sort(key=lambda place: (place[0], -place[1].size))
    end = 0
    kept = []
    for start, piece in places:
        if start >= end:
            kept.append((start, piece))
            end = start + piece.size
    left = file.size - sum(piece.size for _, piece in kept)
    if left > MOST_LITERAL_BYTES:
        checkpoint.notes.append(
            f"checkout writes a fresh file: {left} bytes of this one are not plain tensors"
        )
        return
    checkpoint.skeleton = splice.cut(file, kept)
    checkpoint.exact = True
