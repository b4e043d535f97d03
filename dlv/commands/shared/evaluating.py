"""What a query that trains says while it runs: its plan, and how far it is."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from dlv.commands.shared.invocation import Invocation

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlv.training.ledger.progress import Progress


class Watched:
    """Shows progress from the first that there is, until it is closed.

    `used`: trials have run, so that with --json their events stand on lines of their own.
    """

    def __init__(self, call: Invocation) -> None:
        self.used = False
        self._call = call
        self._shown = ExitStack()
        self._show: Callable[[Progress], None] | None = None

    def __call__(self, progress: Progress) -> None:
        self.used = True
        if self._show is None:
            import dlv.commands.shared.watching as watching

            self._show = self._shown.enter_context(watching.watching(self._call))
        self._show(progress)

    def close(self) -> None:
        self._show = None
        self._shown.close()
