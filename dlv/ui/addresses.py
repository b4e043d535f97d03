"""Addresses of the pages of one repository, which are below a base on a hub."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote, quote_plus, urlencode

from dlv.dataclass import dataclass
from dlv.terminal.table import Cell, Text

_LABEL = re.compile(r"[^@/\s]+@\d+(?:/\d+)?\Z")
_LABELED = ("version", "parents", "model", "of", "base")  # columns with labels of versions
Query = Mapping[str, str] | Iterable[tuple[str, str]]


@dataclass(frozen=True)
class Addresses:
    """`base` is what all addresses begin with; `table` is the page of all versions."""

    base: str = ""
    table: str = "/"

    def to(self, path: str, query: Query = (), *, spaces: str = "+") -> str:
        """Return the address of a page, with its query."""
        pairs = query.items() if isinstance(query, Mapping) else query
        quoted = urlencode(list(pairs), quote_via=quote if spaces == "%20" else quote_plus)
        return f"{self.base}{path}{'?' if quoted else ''}{quoted}"

    def versions(self, query: Query = ()) -> str:
        return self.to(self.table, query, spaces="%20")

    def version(self, label: str) -> str:
        return self.to(f"/v/{quote(label, safe='@')}")

    def network(self, label: str, query: Query = ()) -> str:
        return self.to(f"/network/{quote(label, safe='@/')}", query)

    def statistics(self, label: str) -> str:
        return self.to(f"/statistics/{quote(label, safe='@/')}")

    def file(self, label: str, path: str) -> str:
        return self.to(f"/file/{quote(label, safe='@')}", {"path": path})

    def raw(self, label: str, path: str) -> str:
        return self.to(f"/raw/{quote(label, safe='@')}", {"path": path})

    def compare(self, references: Sequence[str], query: Query = ()) -> str:
        pairs = query.items() if isinstance(query, Mapping) else query
        return self.to("/compare", [*(("v", reference) for reference in references), *pairs])

    def curves(self, labels: Iterable[str]) -> str:
        return self.to("/data/curves", [("v", label) for label in labels])

    def query(self, words: str) -> str:
        return self.to("/query", {"q": words})

    def links(self, title: str, cell: Cell) -> str | None:
        """Return where a cell leads: labels of versions lead to their pages."""
        value = cell.value if isinstance(cell, Text) else cell
        if title in _LABELED and isinstance(value, str):
            return self.version(value) if _LABEL.match(value) else None
        return None
