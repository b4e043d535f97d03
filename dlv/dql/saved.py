"""Saved queries: texts with names, which later queries use as `"name"`."""

from __future__ import annotations

from dlv.dql.outcome import Defined
from dlv.errors import Conflict, NotFound, UsageError, nearest
from dlv.metadata import usage
from dlv.metadata.usage import SavedQuery
from dlv.repository.handle import Repository

LONGEST_NAME = 100


def save_query(
    repository: Repository, name: str, text: str, *, force: bool = False, author: str | None = None
) -> Defined:
    """Give a text a name; one that names another text is only given away by force."""
    check_query_name(name)
    who = _author(repository) if author is None else author
    with repository.change("define", who) as change:
        before = usage.saved_query(change.db, name)
        if before is not None and before.text == text:
            change.cancel()
            return Defined(name, text)
        if before is not None and not force:
            raise Conflict(
                f"a saved query `{name}` already exists",
                why=f"it is {_short(before.text)}",
                hint="--force puts the new one in its place; dlv undo brings the old one back",
            )
        change.record("query", name, {"text": text})
        change.summary = f"{name} as {_short(text)}"
    return Defined(name, text, before is not None)


def _author(repository: Repository) -> str:
    import dlv.versions.version as version

    return version.author(repository)


def forget_query(repository: Repository, name: str, *, author: str | None = None) -> SavedQuery:
    """Take a saved query away; what uses it fails from now on."""
    who = _author(repository) if author is None else author
    with repository.change("forget", who) as change:
        found = show_query(repository, name)
        change.record("query", name, {"text": None})
        change.summary = f"the query {name}"
    return found


def show_query(repository: Repository, name: str) -> SavedQuery:
    db = repository.database
    found = usage.saved_query(db, name)
    if found is None:
        known = [each.name for each in usage.saved_queries(db)]
        shown = ", ".join(known[:8]) + (", .." if len(known) > 8 else "")
        raise NotFound(
            f"no saved query `{name}`",
            why=f"saved queries: {shown}"
            if len(known) > 1
            else f"saved queries: {shown or 'none'}",
            did_you_mean=nearest(name, known),
            hint="dlv query --list",
        )
    return found


def list_queries(repository: Repository) -> list[SavedQuery]:
    return usage.saved_queries(repository.database)


def check_query_name(name: str) -> None:
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise UsageError(
            f"`{name[:LONGEST_NAME]}` cannot name a query",
            why=f"a name has 1 to {LONGEST_NAME} characters, and all of them can be printed",
            hint='define "two words" as select m',
        )


def _short(text: str) -> str:
    """Its beginning, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}..."
