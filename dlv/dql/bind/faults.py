"""What is wrong with a query whose words are in order: names, kinds, references; all at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlv.dql.words.ast import Span
from dlv.dql.words.diagnosis import SyntaxFault
from dlv.errors import DlvError, NotFound, UsageError


class Fault(SyntaxFault):
    """One thing that is wrong. `missing`: it speaks of a version or saved query not there."""

    def __init__(
        self,
        message: str,
        text: str,
        span: Span,
        *,
        why: str | None = None,
        hint: str | None = None,
        did_you_mean: Iterable[str] = (),
        missing: bool = False,
        called: str = "dql",
    ) -> None:
        super().__init__(
            *(message, text, span.start, span.end - span.start),
            why=why,
            hint=hint,
            did_you_mean=did_you_mean,
            called=called,
        )
        self.missing = missing
        if why is not None:
            self.spots = [spot._replace(message=f"{spot.message}: {why}") for spot in self.spots]
        if missing:
            self.exit_code = NotFound.exit_code


class Faults(DlvError):
    """All that is wrong with a statement, in the order of its text."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        first, more = self.faults[0], len(self.faults) - 1
        super().__init__(
            first.message + (f" (and {more} more)" if more else ""),
            why=first.why,
            hint=first.hint,
            did_you_mean=first.did_you_mean,
        )
        self.spots = [spot for fault in self.faults for spot in fault.spots]

    def as_json(self) -> dict[str, object]:
        """The first one as it is for a text that is no query, and the list of all."""
        every = [fault.as_json()["error"] for fault in self.faults]
        first = self.faults[0].as_json()["error"]
        assert isinstance(first, dict)
        return {"error": {**first, "code": self.exit_code, "kind": self.kind, "faults": every}}


class WrongQuery(Faults, UsageError):
    kind = "query"


class MissingReferences(Faults, NotFound):
    """Nothing is wrong but that versions or saved queries are not there."""


def refuse(faults: Sequence[Fault]) -> None:
    """Raise what was found, if anything was."""
    if not faults:
        return
    once = {(f.start, f.length, f.message): f for f in faults}
    ordered = sorted(once.values(), key=lambda fault: fault.start)
    if all(fault.missing for fault in ordered):
        raise MissingReferences(ordered)
    raise WrongQuery(ordered)
