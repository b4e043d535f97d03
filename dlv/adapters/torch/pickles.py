"""Pickles read without making anything: a checked walk over the opcodes, then descriptors.

No class is imported and no function called. Lists and tuples become lists and tuples, sets
lists, dicts `Mapping`; a name is a `Global`, what it would have made is a `Call`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dlv.adapters.torch.pickle_names import Kind, kind_of, shown
from dlv.adapters.torch.pickle_opcodes import MOST_OPCODES, check, instructions
from dlv.errors import Damaged, UnsafeInput

MOST_BYTES = 64 << 20
_MOST_KEY = 4096


class Global:
    """The name of a class, function or dtype; nothing was looked up."""

    __slots__ = ("kind", "module", "name")

    def __init__(self, module: str, name: str, kind: Kind) -> None:
        self.module = module
        self.name = name
        self.kind = kind

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Call:
    """A call that was not made, and the state that its result would have got."""

    __slots__ = ("arguments", "function", "state")

    def __init__(self, function: Global, arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments
        self.state: Any = None


class Persistent:
    """A reference to something outside of the pickle."""

    __slots__ = ("identity",)

    def __init__(self, identity: Any) -> None:
        self.identity = identity


class Mapping:
    """A dict. Its keys are looked up as text or bytes only, whose hashes no file can aim at."""

    __slots__ = ("_entries", "namespace", "state")

    def __init__(self, *, namespace: bool = False) -> None:
        self._entries: dict[str | bytes, tuple[Any, Any]] | None = None
        self.namespace = namespace  # an object whose attributes are the entries
        self.state: Any = None

    def __len__(self) -> int:
        return len(self._entries or ())

    def set(self, key: Any, value: Any) -> None:
        if self._entries is None:
            self._entries = {}
        self._entries[self._slot(key)] = (key, value)

    def get(self, key: str) -> Any:
        return (self._entries or {}).get(key, (None, None))[1]

    def items(self) -> Iterator[tuple[Any, Any]]:
        yield from (self._entries or {}).values()

    def _slot(self, key: Any) -> str | bytes:
        if isinstance(key, str) and len(key) <= _MOST_KEY:
            return key
        if key is None or isinstance(key, bool | float):
            return repr(key).encode()
        if isinstance(key, int) and key.bit_length() <= 64:
            return str(key).encode()
        # Anything else is never compared: comparing could cost more than the file is long.
        return b"#%d" % len(self)


def load(data: bytes | bytearray, where: str) -> Any:
    """The object of a pickle as descriptors; `where` names the pickle in messages."""
    if len(data) > MOST_BYTES:
        raise UnsafeInput(
            f"{where} is too large", why=f"{len(data)} bytes, the limit is {MOST_BYTES}"
        )
    raw = bytes(data)
    check(raw, where)
    return _Machine(where).run(raw)


class _Machine:
    """Runs opcodes that `check` has passed: the stack never runs empty."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.names: dict[tuple[str, str], Global] = {}
        self.copied = 0

    def run(self, data: bytes) -> Any:
        stack = self.stack
        memo = self.memo
        for _, name, argument in instructions(data, self.where):
            if name == "PUSH":
                stack.append(argument)
            elif name == "PUT":
                memo[argument] = stack[-1]
            elif name == "MEMOIZE":
                memo[len(memo)] = stack[-1]
            elif name == "GET":
                if argument not in memo:
                    raise Damaged(f"{self.where} is damaged", why=f"memo {argument} is not set")
                stack.append(memo[argument])
            elif name == "MARK":
                self.marks.append(len(stack))
            elif name == "STOP":
                return stack.pop()
            elif name == "POP":
                stack.pop()
            elif name == "POP_MARK":
                self.to_mark()
            elif name not in ("PROTO", "FRAME"):
                stack.append(self.step(name, argument))
        raise Damaged(f"{self.where} ends too early")

    def step(self, name: str, argument: Any) -> Any:
        """What the opcode leaves on top of the stack."""
        stack = self.stack
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        if name == "EMPTY_LIST":
            return []
        if name == "EMPTY_DICT":
            return Mapping()
        if name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            return tuple(self.take(int(name[-1])))
        if name == "TUPLE":
            return tuple(self.to_mark())
        if name == "LIST":
            return self.to_mark()
        if name in ("APPEND", "APPENDS"):
            items = self.to_mark() if name == "APPENDS" else [stack.pop()]
            return self.extend(stack.pop(), items)
        if name in ("SETITEM", "SETITEMS", "DICT"):
            items = self.take(2) if name == "SETITEM" else self.to_mark()
            return self.set_items(Mapping() if name == "DICT" else stack.pop(), items)
        if name == "GLOBAL":
            return self.named(*argument)
        if name == "STACK_GLOBAL":
            return self.named(*self.take(2))
        if name == "REDUCE":
            function, arguments = self.take(2)
            return self.call(function, arguments)
        if name == "NEWOBJ_EX":
            function, arguments, keywords = self.take(3)
            if not isinstance(keywords, Mapping) or len(keywords):
                raise self.unsafe("makes an object with keyword arguments")
            return self.call(function, arguments)
        if name == "BUILD":
            target, state = self.take(2)
            return self.build(target, state)
        if name == "BINPERSID":
            return Persistent(stack.pop())
        return stack[-1]  # DUP

    def take(self, count: int) -> list[Any]:
        values = self.stack[-count:]
        del self.stack[-count:]
        return values

    def to_mark(self) -> list[Any]:
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def unsafe(self, what: str) -> UnsafeInput:
        return UnsafeInput(f"{self.where} {what}", why="no file written by torch.save does this")

    def spend(self, items: int) -> None:
        """Copies are not paid for by the file's length, so they have a limit of their own."""
        self.copied += items
        if self.copied > MOST_OPCODES:
            raise self.unsafe("repeats its own content too often")

    def named(self, module: Any, name: Any) -> Global:
        if not isinstance(module, str) or not isinstance(name, str):
            raise self.unsafe("uses something else than text as a name")
        known = self.names.get((module, name))
        if known is None:
            known = Global(module, name, kind_of(module, name, self.where))
            self.names[module, name] = known
        return known

    def extend(self, target: Any, items: list[Any]) -> Any:
        if not isinstance(target, list):
            raise self.unsafe(f"appends to {_type(target)}")
        target.extend(items)
        return target

    def set_items(self, target: Any, items: list[Any]) -> Any:
        if not isinstance(target, Mapping):
            raise self.unsafe(f"sets items of {_type(target)}")
        if len(items) % 2:
            raise Damaged(f"{self.where} is damaged", why="a key without a value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            target.set(key, value)
        return target

    def call(self, function: Any, arguments: Any) -> Any:
        if not isinstance(function, Global) or not isinstance(arguments, tuple):
            raise self.unsafe(f"calls {_type(function)}")
        if function.kind is Kind.NAME:
            raise self.unsafe(f"calls `{function}`")
        if function.kind is Kind.VALUE:
            return Call(function, arguments)
        if function.kind is Kind.SEQUENCE:
            return self.sequence(function, arguments)
        result = Mapping(namespace=function.kind is Kind.NAMESPACE)
        for source in arguments:
            if isinstance(source, Mapping):
                self.merge(result, source)
            elif isinstance(source, list):
                for pair in source:
                    if not isinstance(pair, list | tuple) or len(pair) != 2:
                        raise self.unsafe(f"calls `{function}` with something else than pairs")
                    self.spend(1)
                    result.set(*pair)
            elif source is not None and source != () and not isinstance(source, Global):
                raise self.unsafe(f"calls `{function}` with {_type(source)}")
        return result

    def sequence(self, function: Global, arguments: tuple[Any, ...]) -> Any:
        items: Any = arguments[0] if arguments else ()
        if not isinstance(items, list | tuple):
            raise self.unsafe(f"calls `{function}` with {_type(items)}")
        if function.name in ("tuple", "frozenset", "Size"):
            if isinstance(items, tuple):
                return items
            self.spend(len(items))
            return tuple(items)
        self.spend(len(items))
        return list(items)

    def build(self, target: Any, state: Any) -> Any:
        if isinstance(target, Mapping):
            if target.state is not None:
                raise self.unsafe("sets the state of an object twice")
            target.state = state
            if target.namespace:
                for part in state if isinstance(state, tuple) else (state,):
                    if isinstance(part, Mapping):
                        self.merge(target, part)
        elif isinstance(target, Call):
            if target.state is not None:
                raise self.unsafe("sets the state of an object twice")
            target.state = state
        else:
            raise self.unsafe(f"sets the state of {_type(target)}")
        return target

    def merge(self, target: Mapping, source: Mapping) -> None:
        self.spend(len(source))
        for key, value in list(source.items()):
            target.set(key, value)


_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}


def _type(value: Any) -> str:
    """The kind of a value, in a message."""
    if isinstance(value, Global | Call):
        return f"`{shown(str(value.function if isinstance(value, Call) else value))}`"
    return "a dict" if isinstance(value, Mapping) else f"a {type(value).__name__}"
