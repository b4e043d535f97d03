"""HDF5 groups: the names in one, and where what they name begins. Only hard links are followed."""

from __future__ import annotations

from dataclasses import field

from dlv.adapters.hdf5.objects import (
    LINK,
    LINK_INFO,
    TABLE,
    UNDEFINED,
    Cursor,
    Limits,
    Message,
    check_sum,
    name_of,
    only,
)
from dlv.dataclass import dataclass
from dlv.errors import Damaged, NewerFormat, UnsafeInput

MOST_LEVELS = 16


_BY_NAME, _BY_ORDER = 5, 6
MOST_ROWS = 128


def dense_links(limits: Limits, heap: int, tree: int) -> list[bytes]:
    """The link messages of a group, in the order of the hashes of their names."""
    opened = _open(limits, heap)
    return [opened.read(record) for record in _records(limits, tree)]


@dataclass
class _Heap:
    """Where the blocks of a heap lie: start within the heap -> (address, length)."""

    limits: Limits
    offset_bytes: int
    length_bytes: int
    blocks: list[tuple[int, int, int]] = field(default_factory=list)
    data: dict[int, bytes] = field(default_factory=dict)

    def read(self, record: bytes) -> bytes:
        cursor = Cursor(record, self.limits.name)
        flags = cursor.number(1)
        if flags & 0xF0:
            raise NewerFormat(f"{self.limits.name} contains a link that is kept unusually")
        offset, length = cursor.number(self.offset_bytes), cursor.number(self.length_bytes)
        for start, address, size in self.blocks:
            if start <= offset and offset + length <= start + size:
                if address not in self.data:
                    self.data[address] = self.limits.read(address, size)
                return self.data[address][offset - start : offset - start + length]
        raise Damaged(f"the structure of {self.limits.name} is corrupt", why="a link is lost")


def _open(limits: Limits, address: int) -> _Heap:
    raw = check_sum(limits, limits.read(address, 146), "a heap")
    cursor = Cursor(raw, limits.name)
    cursor.expect(b"FRHP\0", "a heap")
    cursor.take(2)
    filters = cursor.number(2)
    cursor.take(1)
    largest = cursor.number(4)
    cursor.take(96)
    width, start = cursor.number(2), cursor.number(8)
    most_direct, bits, _ = cursor.number(8), cursor.number(2), cursor.number(2)
    root, rows = cursor.number(8), cursor.number(2)
    if filters or not 1 <= width <= 64 or not 0 < start <= most_direct <= 1 << 24:
        raise UnsafeInput(f"{limits.name} contains an odd heap")
    if not 0 < bits <= 64 or rows > MOST_ROWS:
        raise UnsafeInput(f"{limits.name} contains an odd heap")
    offset_bytes = -(-bits // 8)
    length_bytes = min(-(-largest.bit_length() // 8), -(-most_direct.bit_length() // 8))
    heap = _Heap(limits, offset_bytes, max(length_bytes, 1))
    if root != UNDEFINED and not rows:
        heap.blocks.append((0, root, start))
    elif root != UNDEFINED:
        # Rows of blocks: the first two of one size, each further one of twice the size before.
        cursor = limits.cursor(root, 13 + offset_bytes + 8 * width * rows)
        cursor.expect(b"FHIB\0", "a heap's index")
        cursor.take(8 + offset_bytes)
        position = 0
        for row in range(rows):
            size = start << max(row - 1, 0)
            for _ in range(width):
                child = cursor.number(8)
                if child != UNDEFINED:
                    if size > most_direct:
                        raise NewerFormat(
                            f"a group of {limits.name} has too many names for dlv",
                            hint="save the file with libver='earliest'",
                        )
                    heap.blocks.append((position, child, size))
                position += size
    for _, child, _ in heap.blocks:
        limits.cursor(child, 5).expect(b"FHDB\0", "a heap's block")
    return heap


def _records(limits: Limits, address: int) -> list[bytes]:
    """The ids under a tree of version 2."""
    cursor = Cursor(check_sum(limits, limits.read(address, 38), "a tree"), limits.name)
    cursor.expect(b"BTHD\0", "a group's tree")
    kind = cursor.number(1)
    node, size, depth = cursor.number(4), cursor.number(2), cursor.number(2)
    cursor.take(2)
    root, count = cursor.number(8), cursor.number(2)
    before = {_BY_NAME: 4, _BY_ORDER: 8}.get(kind)
    if before is None or not before < size <= 64 or not 64 <= node <= 1 << 20:
        raise UnsafeInput(f"{limits.name} contains an odd tree")
    if depth >= MOST_LEVELS:
        raise UnsafeInput(f"{limits.name} contains an odd tree", why=f"depth {depth}")
    if root == UNDEFINED:
        return []
    widths = _widths(node, size, depth)
    found: list[bytes] = []
    waiting = [(root, count, depth)]
    seen: set[int] = set()
    while waiting:
        place, count, level = waiting.pop()
        if place in seen:
            raise UnsafeInput(f"a group of {limits.name} contains itself")
        seen.add(place)
        own, below = widths[level]
        child = 8 + own + below
        length = 6 + size * count + (child * (count + 1) if level else 0)
        if length + 4 > node:
            raise Damaged(f"the structure of {limits.name} is corrupt", why="a group's tree")
        raw = check_sum(limits, limits.read(place, length + 4), "a group's tree")
        cursor = Cursor(raw, limits.name)
        cursor.expect(b"BTIN\0" if level else b"BTLF\0", "a group's tree")
        if cursor.number(1) != kind:
            raise Damaged(f"the structure of {limits.name} is corrupt", why="a group's tree")
        for _ in range(count):
            limits.message()
            found.append(cursor.take(size)[before if kind == _BY_NAME else 8 :])
        for _ in range(count + 1 if level else 0):
            waiting.append((cursor.number(8), cursor.number(own), level - 1))
            cursor.take(below)
    return found


def _widths(node: int, size: int, depth: int) -> list[tuple[int, int]]:
    """Bytes of the two counts beside a child's address, by the level of the parent."""
    most = (node - 10) // size
    own = -(-most.bit_length() // 8)
    widths = [(0, 0)]
    total = most
    below = 0
    for _ in range(depth):
        widths.append((own, below))
        fit = (node - 10 - 8 - own - below) // (size + 8 + own + below)
        total = (fit + 1) * total + fit
        below = -(-total.bit_length() // 8)
    return widths


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
            raise UnsafeInput(f"{limits.name} contains an unsafe name", why=repr(link.name))
    return found


def _refuse(limits: Limits, name: str, kind: int) -> UnsafeInput:
    label = _KINDS.get(kind, f"a link of kind {kind}")
    return UnsafeInput(
        f"{limits.name} holds {label}", why=f"{name!r} leads elsewhere, which is never followed"
    )


def _link(limits: Limits, data: bytes) -> Link:
    cursor = Cursor(data, limits.name)
    version, flags = cursor.number(1), cursor.number(1)
    if version != 1:
        raise NewerFormat(f"{limits.name} contains a link of version {version}")
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
            raise NewerFormat(f"{limits.name} contains a newer kind of group")
        cursor.take(1)
        count = cursor.number(2)
        cursor = limits.cursor(node + 8, 40 * count)
        for _ in range(count):
            offset, address, kind = cursor.number(8), cursor.number(8), cursor.number(4)
            cursor.take(20)
            end = names.find(b"\0", offset)
            if offset >= len(names) or end < 0:
                raise Damaged(f"the structure of {limits.name} is corrupt", why="a name is lost")
            name = name_of(limits, names[offset:end])
            if kind == 2 or address == UNDEFINED:
                raise _refuse(limits, name, 1)
            found.append(Link(name, address))
    return found


def _heap(limits: Limits, address: int) -> bytes:
    cursor = limits.cursor(address, 32)
    cursor.expect(b"HEAP", "the names of a group")
    if cursor.number(1) != 0:
        raise NewerFormat(f"{limits.name} contains a newer kind of names")
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
            raise Damaged(f"the structure of {limits.name} is corrupt", why="a group's tree")
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
