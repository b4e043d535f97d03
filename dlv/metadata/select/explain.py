"""The plan of a query, as it is shown: what is read, by which plan, and what the others cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dlv.metadata.select import wording
from dlv.metadata.select.plan import Step

_LONGEST, _LONGEST_VALUE = 2000, 80  # characters of SQL that are shown on a terminal
_INDENT = "  "


@dataclass(frozen=True)
class Explained:
    """A plan. `rows` and `ms` are known of what was run."""

    steps: Sequence[Step]
    sql: str
    parameters: dict[str, Any]
    machine: Sequence[str]  # what SQLite makes of it
    rows: int | None = None
    ms: float | None = None

    def lines(self) -> list[str]:
        return [*self._lines()]

    def _lines(self) -> Iterator[str]:
        for step in self.steps:
            yield f"{_title(step)}  {_rows(step)}"
            if step.plan is not None:
                yield f"  plan {step.plan.name}{_ms(step.plan.cost)}{_rejected(step)}"
        if self.rows is not None:
            yield f"Result  {self.rows} rows, {self.ms:.1f} ms"
        yield "SQLite"
        yield from (f"  {line}" for line in self.machine)
        yield "SQL"
        yield f"  {self.sql[:_LONGEST]}{' …' if len(self.sql) > _LONGEST else ''}"
        if self.parameters:
            yield "Parameters"
            yield "  " + ", ".join(f"{name} = {_short(v)}" for name, v in self.parameters.items())

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "steps": [_document(step) for step in self.steps],
            "sql": self.sql,
            "parameters": {name: _said(value) for name, value in self.parameters.items()},
            "sqlite": list(self.machine),
        }
        if self.rows is not None and self.ms is not None:
            found |= {"rows": self.rows, "ms": round(self.ms, 3)}
        return found


def _title(step: Step) -> str:
    conditions = " and ".join(map(wording.condition, step.conditions))
    if step.kind == "scan":
        return f"Scan {step.variable}" + (f"  {conditions}" if conditions else "")
    return f"{step.kind.capitalize()} {conditions}"


def _rows(step: Step) -> str:
    said = f"about {step.rows:.0f}" if step.kind != "join" else ""
    if step.kind == "scan":
        said += f" of {step.of:.0f}"
    if step.found is not None:
        said += f", found {step.found}"
    return said


def _ms(microseconds: float) -> str:
    return f"  {microseconds / 1000:.2g} ms"


def _rejected(step: Step) -> str:
    if not step.rejected:
        return ""
    return "   rejected: " + ", ".join(f"{plan.name}{_ms(plan.cost)}" for plan in step.rejected)


def _document(step: Step) -> dict[str, Any]:
    found: dict[str, Any] = {
        "step": step.kind,
        "conditions": [wording.condition(each) for each in step.conditions],
        "estimated_rows": round(step.rows),
    }
    if step.variable:
        found["variable"] = step.variable
    if step.kind == "scan":
        found["of"] = round(step.of)
    if step.plan is not None:
        found["chosen"] = step.plan.document()
        found["rejected"] = [plan.document() for plan in step.rejected]
    if step.found is not None:
        found["rows"] = step.found
    return found


def _said(value: Any) -> Any:
    """Blobs are how truth values and lists are bound."""
    if isinstance(value, bytes):
        return value == b"\x01" if len(value) == 1 else value[1:].decode()
    return value


def _short(value: Any) -> Any:
    """Lists of ids may have thousands of them."""
    said = _said(value)
    long = isinstance(said, str) and len(said) > _LONGEST_VALUE
    return f"{said[: _LONGEST_VALUE - 1]}…" if long else said


def tree(rows: Sequence[tuple[Any, ...]]) -> list[str]:
    """EXPLAIN QUERY PLAN, each line below the one that it belongs to."""
    depth: dict[int, int] = {}
    found = []
    for number, parent, _, detail in rows:
        depth[number] = depth.get(parent, -1) + 1
        found.append(_INDENT * depth[number] + str(detail))
    return found
