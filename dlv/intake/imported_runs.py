"""What an import of runs has made, and what it has passed over."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ImportedRun:
    """`new` is False where the run was imported before."""

    run: str
    title: str
    id: str
    name: str
    number: int | None
    new: bool
    steps: list[int | None]
    series: list[tuple[str, int]] = field(default_factory=list)  # tag, points
    raw: int = 0

    @property
    def label(self) -> str:
        return self.id[:12] if self.number is None else f"{self.name}@{self.number}"


@dataclass
class Imported:
    versions: list[ImportedRun] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    stored: int = 0
    seconds: float = 0.0
