"""HDF5 groups: the names in one, and where what they name begins. Only hard links are followed."""

from __future__ import annotations

from dataclasses import dataclass

from dlv.adapters.hdf5.bytes import UNDEFINED, Cursor, Limits
from dlv.adapters.hdf5.dense import dense_links
from dlv.adapters.hdf5.headers import LINK, LINK_INFO, TABLE, Message, name_of, only
from dlv.errors import Damaged, NewerFormat, UnsafeInput

MOST_LEVELS = 16
_KINDS = {1: "a soft link", 64: "an external link"}


@dataclass(frozen=True)
class Link:
    name: str
    address: int


def is_group(messages: list[Message]) -> bool:
    return any(message.kind in (TABLE, LINK_INFO) for message in messages)


def links(limits: Limits, messages: list[Message]) -> list[Link]:
    """What a group names, in the order of the file; names once each and safe as a path."""
    table = only(messages, TABLE)
    if table is not None:
        found = _table(limits, Cursor(table, limits.name))
    else:
        found = [_link(limits, m.data) for m in messages if m.kind == LINK]
        found += _dense(limits, only(messages, LINK_INFO) or b"")
    seen: set[str] = set()
    for link in found:
        limits.message()
        if link.name in seen:
            raise UnsafeInput(f"{limits.name} holds {link.name!r} twice in one group")
        seen.add(link.name)
        if not link.name or "/" in link.name or link.name in (".", ".."):
            raise UnsafeInput(f"{limits.name} holds an unsafe name", why=repr(link.name))
    return found


def _refuse(limits: Limits, name: str, kind: int) -> UnsafeInput:
    what = _KINDS.get(kind, f"a link of kind {kind}")
    return UnsafeInput(
        f"{limits.name} holds {what}", why=f"{name!r} leads elsewhere, which is never followed"
    )


def _link(limits: Limits, data: bytes) -> Link:
    cursor = Cursor(data, limits.name)
    version, flags = cursor.number(1), cursor.number(1)
    if version != 1:
        raise NewerFormat(f"{limits.name} holds a link of version {version}")
    kind = cursor.number(1) if flags & 8 else 0
    cursor.take((8 if flags & 4 else 0) + (1 if flags & 16 else 0))
    name = name_of(limits, cursor.take(cursor.number(1 << (flags & 3))))
    if kind:
        raise _refuse(limits, name, kind)
    return Link(name, cursor.number(8))


def _dense(limits: Limits, info: bytes) -> list[Link]:
    if not info:
        return []
    cursor = Cursor(info, limits.name)
    cursor.take(1)
    flags = cursor.number(1)
    cursor.take(8 if flags & 1 else 0)
    heap, tree = cursor.number(8), cursor.number(8)
    if heap == UNDEFINED:
        return []
    return [_link(limits, data) for data in dense_links(limits, heap, tree)]


def _table(limits: Limits, message: Cursor) -> list[Link]:
    """The old form: a tree of symbol nodes, and a heap with the names."""
    tree, heap = message.number(8), message.number(8)
    names = _heap(limits, heap)
    found: list[Link] = []
    for node in leaves(limits, tree):
        cursor = limits.cursor(node, 8)
        cursor.expect(b"SNOD", "a group's node")
        if cursor.number(1) != 1:
            raise NewerFormat(f"{limits.name} holds a newer kind of group")
        cursor.take(1)
        count = cursor.number(2)
        cursor = limits.cursor(node + 8, 40 * count)
        for _ in range(count):
            offset, address, kind = cursor.number(8), cursor.number(8), cursor.number(4)
            cursor.take(20)
            end = names.find(b"\0", offset)
            if offset >= len(names) or end < 0:
                raise Damaged(f"the structure of {limits.name} is damaged", why="a name is lost")
            name = name_of(limits, names[offset:end])
            if kind == 2 or address == UNDEFINED:
                raise _refuse(limits, name, 1)
            found.append(Link(name, address))
    return found


def _heap(limits: Limits, address: int) -> bytes:
    cursor = limits.cursor(address, 32)
    cursor.expect(b"HEAP", "the names of a group")
    if cursor.number(1) != 0:
        raise NewerFormat(f"{limits.name} holds a newer kind of names")
    cursor.take(3)
    size = cursor.number(8)
    cursor.take(8)
    return limits.read(cursor.number(8), size)


def leaves(limits: Limits, tree: int) -> list[int]:
    """The symbol nodes under a tree, left to right; no node is visited twice."""
    found: list[int] = []
    waiting = [(tree, -1)]
    seen: set[int] = set()
    while waiting:
        address, wanted = waiting.pop()
        if address in seen:
            raise UnsafeInput(f"a group of {limits.name} contains itself")
        seen.add(address)
        limits.message()
        cursor = limits.cursor(address, 24)
        cursor.expect(b"TREE", "a group's tree")
        kind, level, used = cursor.number(1), cursor.number(1), cursor.number(2)
        if kind != 0 or level >= MOST_LEVELS or wanted not in (-1, level):
            raise Damaged(f"the structure of {limits.name} is damaged", why="a group's tree")
        cursor = limits.cursor(address + 24, 16 * used + 8)
        children = []
        for _ in range(used):
            cursor.take(8)
            children.append(cursor.number(8))
        if level == 0:
            found += children
            if len(set(children)) != len(children):
                raise UnsafeInput(f"a group of {limits.name} contains itself")
        else:
            waiting += [(child, level - 1) for child in reversed(children)]
    return found
