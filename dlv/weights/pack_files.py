"""Packs on their way: temporary files until all of them are published, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from dlv.disk.durable import TemporaryFile, publish_all
from dlv.pas.chunks import SUFFIX
from dlv.pas.footer import Encoding, Footer
from dlv.pas.spool import Spool


class Place(Protocol):
    """Where packs go, and what they say of who wrote them."""

    packs_dir: Path
    tmp_dir: Path
    writer: str


@dataclass(frozen=True)
class PackRecord:
    """A published pack."""

    hash: str
    path: Path
    bytes: int
    rows: Footer

    @property
    def footer(self) -> dict[str, Any]:
        return self.rows.as_json()


class PackFiles:
    """What writers of packs share: their files, gone when it ends unless they are published."""

    def __init__(self, place: Place, buffer: int) -> None:
        self._place = place
        self._files: list[TemporaryFile] = []
        self._spool = Spool(self._new_file, writer=place.writer, buffer=buffer)
        self._empty: list[Encoding] = []

    def abort(self) -> None:
        """Remove what was written so far."""
        for file in self._files:
            file.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.abort()

    def _new_file(self) -> TemporaryFile:
        file = TemporaryFile(self._place.tmp_dir, suffix=SUFFIX)
        self._files.append(file)
        return file

    def _publish(
        self, packs: Sequence[tuple[TemporaryFile, Footer]], names: list[str]
    ) -> list[PackRecord]:
        paths = publish_all([file for file, _ in packs], self._place.packs_dir, names, SUFFIX)
        return [
            PackRecord(name, path, file.tell(), footer)
            for name, path, (file, footer) in zip(names, paths, packs, strict=True)
        ]
