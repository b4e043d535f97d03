"""Trained checkpoints, one file each, kept in a cache folder under their corpus and seed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from benchmarks.storage import models
from benchmarks.storage.models import Model

# Raised whenever a recipe changes, so that no old checkpoint is taken for a new one.
RECIPE = 1


def default_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "dlv-benchmarks"


Line = Callable[[], Iterator[Model]]


class Recipe(Protocol):
    def __call__(self, seed: int, end: Callable[[str], Model]) -> dict[str, Line]: ...


@dataclass
class Corpus:
    """The lines of one corpus, each trained when it is first asked for."""

    name: str
    seed: int
    recipe: Recipe
    cache: Path
    say: Callable[[str], None]
    _lines: dict[str, Line] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.cache / f"{self.name}-seed{self.seed}-recipe{RECIPE}"

    def files(self, line: str) -> list[Path]:
        """The checkpoints of a line, oldest first."""
        folder = self.folder / line
        if not folder.is_dir():
            self._train(line, folder)
        return sorted(folder.glob("*.safetensors"))

    def end(self, line: str) -> Model:
        return models.load(self.files(line)[-1])

    def every(self) -> list[str]:
        """The names of all lines."""
        if not self._lines:
            self._lines = self.recipe(self.seed, self.end)
        return list(self._lines)

    def _train(self, line: str, folder: Path) -> None:
        self.every()
        self.say(f"training {self.name}/{line}, seed {self.seed}")
        partial = folder.with_name(f"{line}.{os.getpid()}")
        shutil.rmtree(partial, ignore_errors=True)
        for number, model in enumerate(self._lines[line](), 1):
            models.save(partial / f"{number:02}.safetensors", model)
        partial.rename(folder)
