"""An index in memory: what the database knows of packs, for tests of weights alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from dlv.kinds import Piece
from dlv.pas.footer import Encoding, Footer, pieces_of


class Published(Protocol):
    @property
    def hash(self) -> str: ...
    @property
    def rows(self) -> Footer: ...


class MemoryIndex:
    def __init__(self) -> None:
        self.encodings: dict[str, Encoding] = {}
        self.pieces: list[Piece] = []

    def add(self, packs: Iterable[Published]) -> None:
        for pack in packs:
            self.add_footer(pack.rows, pack.hash)

    def add_footer(self, footer: Footer, pack: str) -> None:
        self.encodings.update({row.matrix: row for row in footer.encodings})
        self.pieces.extend(pieces_of(footer, pack))

    def encoding(self, matrix: str) -> Encoding | None:
        return self.encodings.get(matrix)

    def chunks(self, matrix: str) -> list[Piece]:
        kinds = ("plane", "side")
        return [row for row in self.pieces if row.object == matrix and row.kind in kinds]

    def object_chunks(self, kind: str, name: str) -> list[Piece]:
        return [row for row in self.pieces if row.object == name and row.kind == kind]
