"""Settings of repositories and namespaces: aliases, members, visibility, space, the audit log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from dlv.dataclass import dataclass
from dlv.errors import DlvError, UsageError
from dlv.hub.server import accounts, members, repositories, tables
from dlv.hub.server.access import ROLES, Place, Role, namespace_role, role_of
from dlv.hub.server.refusal import Refused, not_found
from dlv.report.markup import Html, text
from dlv.terminal.output import Fields
from dlv.terminal.table import Bytes, Cell, Column, Moment, Table
from dlv.ui.frame import Frame, now
from dlv.ui.hub.context import Context, words_of
from dlv.ui.hub.visitors import Visitor, redirect

LINES = 50  # of the audit log
Form = Mapping[str, str]


@dataclass(frozen=True)
class Subject:
    """What is set: a repository, or a namespace if `place` is None."""

    namespace: str
    role: Role
    action: str  # the address of its settings
    place: Place | None = None

    @property
    def label(self) -> str:
        return self.namespace if self.place is None else self.place.label


def of_repository(context: Context, place: Place) -> Subject:
    if place.role < Role.MAINTAINER:
        raise Refused(403, "settings require the role maintainer")
    action = context.addresses(place.namespace, place.name).to("/-/settings")
    return Subject(place.namespace, place.role, action, place)


def of_namespace(context: Context, visitor: Visitor, name: str) -> Subject:
    with context.hub.database.reading() as connection:
        known, role = namespace_role(connection, visitor.caller, name)
    if known is None or role is Role.NONE:
        raise not_found()
    if role < Role.ADMIN:
        raise Refused(403, "settings require the role admin")
    return Subject(name.lower(), role, f"{context.namespace(name.lower())}/-/settings")


def show(
    context: Context, visitor: Visitor, subject: Subject, before: int = 0, fault: str = ""
) -> Any:
    """The page; maintainers see the aliases alone, admins all."""
    place, admin = subject.place, subject.role >= Role.ADMIN
    frame = Frame(now())
    values: dict[str, Any] = {"aliases": None, "models": [], "members": None, "audit": None}
    values |= {"older": "", "quota": "", "example": "", "description": "", "visibility": ""}
    with context.hub.database.reading() as connection:
        if place is not None:
            rows = repositories.aliases(connection, place.id)
            names = list(repositories.newest_refs(connection, place.id))
            first = names[0] if names else "MODEL"
            values |= {
                "aliases": _alias_table(visitor, subject, rows, frame), "models": names[:500],
                "example": f"dlv pull {place.name}:{first}@production",
                "description": place.description,
                "visibility": "public" if place.public else "private",
            }  # fmt: skip
        if admin:
            name = None if place is None else place.name
            found = members.members(connection, subject.namespace, name)
            values["members"] = _member_table(visitor, subject, found, frame)
            quota = accounts.quotas(connection, subject.namespace)
            values["quota"] = _quota(context, quota, frame)
            lines = _newest_lines(connection, subject.label, before)
            values["audit"] = _audit_table(lines, frame)
            if len(lines) == LINES:
                values["older"] = f"{subject.action}?before={lines[-1]['seq']}#audit"
    around = (
        context.around_namespace(visitor, subject.namespace, subject.role)
        if place is None
        else context.around_place(visitor, place)
    )
    return context.shell.render(
        "hub_settings.html", f"Settings of {subject.label}", around, 422 if fault else 200,
        here="Settings", action=subject.action, fault=fault, roles=ROLES,
        about_form=place is not None and admin, visibilities=repositories.VISIBILITIES, **values,
    )  # fmt: skip


def change(context: Context, visitor: Visitor, subject: Subject, form: Form) -> Any:
    """Do what a form says; a refusal is shown on the page."""
    kinds = {"change": _change, "alias": _set_alias, "member": _set_member}
    work = kinds.get(form.get("do", ""))
    try:
        if work is None:
            raise UsageError("the form is not one of this page")
        anchor = work(context, visitor, subject, form)
    except Refused as refused:
        return show(context, visitor, subject, fault=words_of(refused.error))
    except DlvError as error:
        return show(context, visitor, subject, fault=words_of(error))
    return redirect(f"{subject.action}#{anchor}")


def _admin(subject: Subject) -> None:
    if subject.role < Role.ADMIN:
        raise Refused(403, "this requires the role admin")


def _change(context: Context, visitor: Visitor, subject: Subject, form: Form) -> str:
    _admin(subject)
    if subject.place is None:
        raise UsageError("a namespace has no visibility")
    visibility: str | None = form.get("visibility")
    if visibility == ("public" if subject.place.public else "private"):
        visibility = None  # only a change is an audit line
    description = form.get("description", "").replace("\r\n", "\n")
    repositories.change(context.hub, visitor.caller, subject.place, visibility, description)
    return "repository"


def _set_alias(context: Context, visitor: Visitor, subject: Subject, form: Form) -> str:
    if subject.place is None:
        raise UsageError("a namespace has no aliases")
    name, alias = form.get("model", ""), form.get("alias", "").strip().lower()
    number: int | None = None
    if "delete" not in form:
        word = form.get("number", "")
        if not (word.isascii() and word.isdigit() and len(word) < 16):
            raise UsageError(f"`{word[:20]}` is not the number of a version")
        number = int(word)
    repositories.set_alias(context.hub, visitor.caller, subject.place, name, alias, number)
    return "aliases"


def _set_member(context: Context, visitor: Visitor, subject: Subject, form: Form) -> str:
    _admin(subject)
    caller, user = visitor.caller, form.get("user", "").strip()
    with context.hub.database.writing() as connection:
        if "delete" in form:
            members.remove_member(connection, caller, subject.label, user)
            return "members"
        role = form.get("role", "")
        if role in ROLES and role_of(role) > caller.highest:
            raise Refused(403, f"the role {role} is above your own")
        members.set_member(connection, caller, subject.label, user, role)
    return "members"


# Tables


def _button(visitor: Visitor, subject: Subject, fields: Mapping[str, str], label: str) -> Html:
    """A button that is a form of its own."""
    hidden = "".join(
        f'<input type="hidden" name="{name}" value="{text(value)}">'
        for name, value in {"secret": visitor.secret, "delete": "1", **fields}.items()
    )
    return Html(
        f'<form class="inline" action="{text(subject.action)}" method="post">{hidden}'
        f'<button aria-label="Remove {text(label)}">Remove</button></form>'
    )


def _alias_table(
    visitor: Visitor, subject: Subject, rows: Sequence[Mapping[str, Any]], frame: Frame
) -> Html:
    cells: list[list[Cell]] = []
    for row in rows:
        fields = {"do": "alias", "model": str(row["name"]), "alias": str(row["alias"])}
        label = f"{row['alias']} of {row['name']}"
        button = _button(visitor, subject, fields, label)
        cells.append(
            [row["alias"], f"{row['name']}@{row['number']}", Moment(row["changed"]), button]
        )
    columns = [Column("alias"), Column("leads to"), Column("since"), Column("")]
    return frame.table(Table(columns, cells), caption="aliases", fold=200)


def _member_table(
    visitor: Visitor, subject: Subject, found: Sequence[members.Member], frame: Frame
) -> Html:
    cells: list[list[Cell]] = []
    for member in found:
        button = _button(visitor, subject, {"do": "member", "user": member.user}, member.user)
        cells.append([member.user, member.role, Moment(member.created), button])
    columns = [Column("user"), Column("role"), Column("since"), Column("")]
    return frame.table(Table(columns, cells), caption="members", fold=200)


def _quota(context: Context, quotas: Sequence[accounts.Quota], frame: Frame) -> Html:
    if not quotas:
        return Html("")
    quota = quotas[0]
    most = context.hub.limits.quota if quota.quota is None else quota.quota
    fields: dict[str, Cell] = {
        "namespace": quota.namespace,
        "used": Bytes(quota.used),
        "reserved by uploads": Bytes(quota.reserved),
        "quota": "unlimited" if most is None else Bytes(most),
    }
    return frame.html(Fields(fields))


def _newest_lines(connection: sa.Connection, label: str, before: int) -> list[dict[str, Any]]:
    """Return lines about a repository or a namespace, newest first."""
    target = tables.audit.c.target
    below = [target.startswith(f"{label}{mark}", autoescape=True) for mark in ":/"]
    query = sa.select(tables.audit).where(sa.or_(target == label, *below))
    if before:
        query = query.where(tables.audit.c.seq < before)
    query = query.order_by(tables.audit.c.seq.desc()).limit(LINES)
    return [dict(row) for row in connection.execute(query).mappings()]


def _audit_table(lines: Sequence[Mapping[str, Any]], frame: Frame) -> Html:
    cells: list[list[Cell]] = [
        [
            line["seq"], Moment(line["time"]), line["actor"], line["origin"], line["action"],
            line["target"], _short(line["before"]), _short(line["after"]),
        ]
        for line in lines
    ]  # fmt: skip
    columns = [
        Column("line"), Column("time"), Column("user"), Column("address"), Column("action"),
        Column("what"), Column("before"), Column("after"),
    ]  # fmt: skip
    return frame.table(Table(columns, cells), caption="audit log", fold=None)


def _short(value: str | None) -> Cell:
    return value if value is None or len(value) <= 24 else f"{value[:12]}…"
