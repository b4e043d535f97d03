"""Protobuf's text format, as Caffe's `.prototxt` files have it, read into messages.

No schema: a field that comes several times has several values. `name: {`, `name {`, `name <`,
lists in brackets, comments, texts in several pieces, `;` and `,` between fields are understood.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from dlv.adapters.protobuf import Message, Value, Word
from dlv.adapters.source import Source
from dlv.errors import Damaged, UnsafeInput

MOST_BYTES = 4 << 20  # the network of 1,000 layers takes a tenth of it
MOST_DEPTH = 32
MOST_VALUES = 200_000
MOST_TEXT = 1 << 16

# Possessive, so that no text is looked at twice.
_TOKEN = re.compile(
    r"(?P<blank>(?:[ \t\r\n\v\f]++|\#[^\n]*+)++)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*+)"
    r"|(?P<number>(?:0[xX][0-9a-fA-F]++|(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)"
    r"(?:[eE][+-]?[0-9]++)?[fF]?)(?![A-Za-z0-9_.]))"
    r"|(?P<text>\"(?:[^\"\\\n]++|\\[^\n])*+\"|'(?:[^'\\\n]++|\\[^\n])*+')"
    r"|(?P<sign>[{}<>\[\]:;,./-])"
)
_ESCAPE = re.compile(
    r"\\(?:(?P<octal>[0-7]{1,3})|[xX](?P<hex>[0-9a-fA-F]{1,2})|u(?P<short>[0-9a-fA-F]{4})"
    r"|U(?P<long>[0-9a-fA-F]{8})|(?P<plain>.))"
)
_PLAIN = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_PLAIN |= {sign: ord(sign) for sign in "?\\'\""}
_CLOSING = {"{": "}", "<": ">"}
_LIST = "]"
_NOT_FINITE = ("inf", "infinity", "nan")
_LONGEST_NUMBER = 100


def read(path: str) -> Message:
    """The message that a file consists of."""
    with Source(path) as file:
        if file.size > MOST_BYTES:
            raise UnsafeInput(
                f"{file.name} is too large for a string of this format",
                why=f"{file.size} bytes, the limit is {MOST_BYTES}",
            )
        data = bytes(file.read(0, file.size))
    return parse(data, file.name)


def parse(data: bytes, label: str) -> Message:
    """The network in these bytes; `label` names them in messages."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Damaged(f"{label}, line {line}, is not UTF-8", why=str(error)) from error
    return _Parser(text, label).message()


class _Token(NamedTuple):
    kind: str  # word, number, text, sign; end
    text: str
    line: int


def _tokens(text: str, label: str) -> Iterator[_Token]:
    at, line = 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            found = text[at : at + 20].split("\n")[0]
            kind = "a string without its end" if found[:1] in "\"'" else "no protobuf text"
            raise Damaged(f"{label}, line {line}, cannot be read", why=f"{kind}: {found!r}")
        at = match.end()
        if match.lastgroup == "blank":
            line += match[0].count("\n")
        else:
            yield _Token(str(match.lastgroup), match[0], line)
    yield _Token("end", "the end of the file", line)


class _Parser:
    """One pass over the tokens; messages that are still open are on a list, not on the stack."""

    def __init__(self, text: str, label: str) -> None:
        self.label = label
        self.tokens = _tokens(text, label)
        self.token = next(self.tokens)
        self.values = 0
        # Message, what closes it, and the field that a list belongs to.
        self.open: list[tuple[Message, str, str]] = [(Message(label, 1), "end", "")]

    def message(self) -> Message:
        root = self.open[0][0]
        while True:
            current, closing, name = self.open[-1]
            if closing == _LIST:
                self.element(current, name)
            elif self.token.kind == "end":
                if closing != "end":
                    self.fail(f"`{closing}` for line {current.line}")
                return root
            elif self.token.text == closing and self.token.kind == "sign":
                self.open.pop()
                self.advance()
                self.separator()
            else:
                self.field(current)

    def field(self, into: Message) -> None:
        name = self.name()
        colon = self.accept(":")
        if self.is_sign("{", "<"):
            self.begin(into, name)
            return
        if not colon:
            self.fail("`:` or `{`")
        if self.accept("["):
            self.nest(into, _LIST, name)
            if self.accept("]"):
                self.end_list()
            return
        line = self.token.line
        self.add(into, name, self.scalar(), line)
        self.separator()

    def element(self, into: Message, name: str) -> None:
        """One element of a list; a message in it is read, and closed, like any other."""
        if self.is_sign("{", "<"):
            # What comes behind it is looked at when it has been closed.
            self.open[-1] = (into, _LIST, name)
            self.begin(into, name)
            return
        if self.accept("]"):
            self.end_list()
            return
        line = self.token.line
        self.add(into, name, self.scalar(), line)
        if self.accept("]"):
            self.end_list()
        elif not self.accept(","):
            self.fail("`,` or `]`")

    def end_list(self) -> None:
        self.open.pop()
        self.separator()

    def begin(self, into: Message, name: str) -> None:
        made = Message(self.label, self.token.line)
        closing = _CLOSING[self.token.text]
        self.add(into, name, made, self.token.line)
        self.advance()
        self.nest(made, closing, "")

    def nest(self, message: Message, closing: str, name: str) -> None:
        if len(self.open) > MOST_DEPTH:
            raise UnsafeInput(
                f"{self.label}, line {self.token.line}, is nested too deeply",
                why=f"the limit is {MOST_DEPTH} levels",
            )
        self.open.append((message, closing, name))

    def add(self, into: Message, name: str, value: Value, line: int) -> None:
        self.count(line)
        into.add(name, value, line)

    def count(self, line: int) -> None:
        self.values += 1
        if self.values > MOST_VALUES:
            raise UnsafeInput(
                f"{self.label}, line {line}, has too many values", why=f"the limit is {MOST_VALUES}"
            )

    def name(self) -> str:
        if self.token.kind == "word":
            return self.advance().text
        if not self.accept("["):
            self.fail("the name of a field")
        name = ""  # of an extension: [package.name], [domain/package.name]
        while not self.accept("]"):
            if self.token.kind != "word" and not self.is_sign(".", "/", "-"):
                self.fail("the name of an extension")
            name += self.advance().text
            if len(name) > MOST_TEXT:
                self.fail("a shorter name")
        return f"[{name}]"

    def scalar(self) -> Value:
        negative = self.accept("-")
        token = self.advance()
        if token.kind == "number":
            return self.number(token, negative)
        if token.kind == "word":
            if not negative:
                return Word(token.text)
            if token.text.lower() in _NOT_FINITE:
                return -float(token.text)
        if token.kind != "text" or negative:
            self.fail("a value", token)
        pieces = [self.unescaped(token)]
        while self.token.kind == "text":
            self.count(self.token.line)
            pieces.append(self.unescaped(self.advance()))
        try:
            text = b"".join(pieces).decode("utf-8")
        except UnicodeDecodeError as error:
            raise Damaged(
                f"{self.label}, line {token.line}: a string is not UTF-8", why=str(error)
            ) from error
        if len(text) > MOST_TEXT:
            raise UnsafeInput(f"{self.label}, line {token.line}: a string is too long")
        return text

    def number(self, token: _Token, negative: bool) -> int | float:
        text = token.text
        if len(text) <= _LONGEST_NUMBER:
            try:
                if text[:2] in ("0x", "0X"):
                    value: int | float = int(text, 16)
                elif text.isdecimal():
                    value = int(text, 8 if text[0] == "0" else 10)
                else:
                    value = float(text.rstrip("fF"))
            except ValueError:  # 08, 09
                self.fail("a number", token)
            if isinstance(value, float) or value < 1 << 64:
                return -value if negative else value
        raise Damaged(f"{self.label}, line {token.line}: a number of more than 64 bits")

    def unescaped(self, token: _Token) -> bytes:
        text = token.text[1:-1]
        if "\\" not in text:
            return text.encode("utf-8")
        found, at = bytearray(), 0
        for match in _ESCAPE.finditer(text):
            found += text[at : match.start()].encode("utf-8")
            at = match.end()
            kind, digits = str(match.lastgroup), match[str(match.lastgroup)]
            if kind == "plain":
                if digits not in _PLAIN:
                    self.fail("an escape in a string", token)
                found.append(_PLAIN[digits])
                continue
            code = int(digits, 8 if kind == "octal" else 16)
            if kind in ("octal", "hex"):
                found.append(code & 0xFF)
            elif 0xD800 <= code < 0xE000 or code > 0x10FFFF:
                self.fail("a character", token)
            else:
                found += chr(code).encode("utf-8")
        return bytes(found) + text[at:].encode("utf-8")

    def separator(self) -> None:
        """What may stand between fields; behind a message in a list, what must."""
        if self.open[-1][1] == _LIST:
            if self.accept("]"):
                self.end_list()
            elif not self.accept(","):
                self.fail("`,` or `]`")
        elif not self.accept(";"):
            self.accept(",")

    def is_sign(self, *signs: str) -> bool:
        return self.token.kind == "sign" and self.token.text in signs

    def accept(self, sign: str) -> bool:
        found = self.is_sign(sign)
        if found:
            self.advance()
        return found

    def advance(self) -> _Token:
        token = self.token
        if token.kind != "end":
            self.token = next(self.tokens)
        return token

    def fail(self, wanted: str, token: _Token | None = None) -> NoReturn:
        token = token or self.token
        raise Damaged(
            f"{self.label}, line {token.line}, cannot be read",
            why=f"{token.text[:40]} where {wanted} is expected",
        )
