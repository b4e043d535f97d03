"""dlv.adapters.caffe.prototxt against protobuf's own text format."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.adapters.caffe import prototxt
from dlv.adapters.protobuf import Message, Word
from dlv.errors import Damaged, DlvError, NotFound, UnsafeInput

KINDS = descriptor_pb2.FieldDescriptorProto


def message_type() -> Any:
    """message M { int64 i = 1; double d = 2; string s = 3; M m = 4; E e = 5; bool b = 6; }"""
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", package="t")
    made = file.message_type.add(name="M")
    kinds = {
        "i": KINDS.TYPE_INT64,
        "d": KINDS.TYPE_DOUBLE,
        "s": KINDS.TYPE_STRING,
        "m": KINDS.TYPE_MESSAGE,
        "e": KINDS.TYPE_ENUM,
        "b": KINDS.TYPE_BOOL,
    }
    for number, (name, kind) in enumerate(kinds.items(), 1):
        field = made.field.add(name=name, number=number, type=kind, label=KINDS.LABEL_REPEATED)
        if name in "me":
            field.type_name = ".t.M" if name == "m" else ".t.E"
    enum = file.enum_type.add(name="E")
    for number, name in enumerate(("ZERO", "ONE_2")):
        enum.value.add(name=name, number=number)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.M"))


M = message_type()


def plain(message: Message) -> dict[str, list[Any]]:
    """Recursive, in a test: texts are shallow here."""
    return {
        name: [plain(value) if isinstance(value, Message) else value for value in values]
        for name, values in message.fields.items()
    }


def reference(message: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for field, values in message.ListFields():
        if field.name == "m":
            found["m"] = [reference(value) for value in values]
        elif field.name == "e":
            found["e"] = [("ZERO", "ONE_2")[value] for value in values]
        elif field.name == "b":
            found["b"] = ["true" if value else "false" for value in values]
        else:
            found[field.name] = list(values)
    return found


def filled(depth: int) -> st.SearchStrategy[Any]:
    fields = {
        "i": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
        "d": st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=3),
        "s": st.lists(st.text(st.characters(codec="utf-8"), max_size=8), max_size=3),
        "e": st.lists(st.integers(0, 1), max_size=3),
        "b": st.lists(st.booleans(), max_size=3),
        "m": st.lists(filled(depth - 1), max_size=2) if depth else st.just([]),
    }
    return st.builds(M, **fields)


@settings(max_examples=150, deadline=None)
@given(filled(2), st.booleans(), st.booleans(), st.booleans())
def test_reads_what_the_library_writes(
    message: Any, one_line: bool, short: bool, utf8: bool
) -> None:
    text = text_format.MessageToString(
        message, as_one_line=one_line, use_short_repeated_primitives=short, as_utf8=utf8
    )
    found = plain(prototxt.parse(text.encode(), "m"))
    wanted = reference(message)
    # A double without a fraction is written, and read, like a whole number.
    assert found == wanted


SAMPLES = [
    "",
    "# only a comment",
    "i: 1,i: 2;i:3",
    "m { i: 1 } m: { i: 2 } m < i: 3 > m: < i: 4 >; m { }",
    "i: [1, 2, -3] i: []",
    "m: [{ i: 1 }, < s: 'a' >] m: []",
    "s: 'a' \"b\" 'c'\ns: 'it''s'",
    r"s: '\a\b\f\n\r\t\v\\\'\"' s: '\101\x41\u00e4\U0001f600\303\244'",
    "i: 0x1F i: -0x10 i: 017 i: 0",
    "d: 1 d: 1.5 d: .5 d: 1. d: 1e3 d: 1.5e-3 d: 2f d: -1.5F d: inf d: -inf",
    "e: ONE_2 e: ZERO b: true b: false",
    "m { m { m { i: 1 } } } # end\r\n\t i: 5",
    "i:1 i :2 i\n:\n3",
    "s: \"a # no comment\" # one\ns: 'b'",
]


@pytest.mark.parametrize("text", SAMPLES)
def test_all_forms_as_the_library_reads_them(text: str) -> None:
    wanted = reference(text_format.Parse(text, M()))
    found = plain(prototxt.parse(text.encode(), "m"))
    for name in ("d",):
        if name in found:
            words = {"inf": float("inf")}
            found[name] = [words.get(v, v) if isinstance(v, str) else v for v in found[name]]
    assert {name: values for name, values in found.items() if values} == wanted


BROKEN = [
    "i",
    "i:",
    "i 1",
    "i: 1 }",
    "m {",
    "m { i: 1",
    "m { i: 1 >",
    "m < i: 1 }",
    "m: [{ i: 1 } { i: 2 }]",
    "i: [1 2]",
    "i: [1",
    "i: [,]",
    "i: [[1]]",
    "i: --1",
    "i: 08",
    "i: 1x",
    "i: 0x",
    "i: 99999999999999999999999",
    "s: 'a",
    's: "a\nb"',
    "s: 'a\\",
    r"s: '\ud800'",
    r"s: '\U00110000'",
    r"s: '\xff'",
    "s: -'a'",
    "s: 'a' 5",
    "i: 1 ; ; i: 2",
    "{ i: 1 }",
    ": 1",
    "[a.b",
    "i: 1 @",
    "d: 1..5",
    "d: 1e",
    "e: -ZERO",
]


@pytest.mark.parametrize("text", BROKEN)
def test_what_the_library_refuses_too(text: str) -> None:
    with pytest.raises(text_format.ParseError):
        text_format.Parse(text, M())
    with pytest.raises(Damaged) as caught:
        prototxt.parse(text.encode(), "m")
    assert "m, line" in caught.value.message


def test_escapes_of_the_specification_that_the_library_in_python_lacks() -> None:
    assert prototxt.parse(rb"s: '\?'", "f").text("s") == "?"
    with pytest.raises(Damaged):
        prototxt.parse(rb"s: '\q'", "f")


def test_places() -> None:
    message = prototxt.parse(b"a: 1\n# x\nb {\n  c: 'x\\n'\n  c: 2\n}\n\nb: 7", "f")
    assert message.lines == {"a": [1], "b": [3, 8]}
    inner = message.fields["b"][0]
    assert (inner.line, inner.lines["c"]) == (3, [4, 5])
    assert inner.place("c", 1) == "f, line 5"
    with pytest.raises(Damaged, match="f, line 3") as caught:
        prototxt.parse(b"a: 1\n\n  b ? 2", "f")
    assert "? 2" in (caught.value.why or "")
    with pytest.raises(Damaged, match="f, line 2, is not UTF-8"):
        prototxt.parse(b"a: 1\nb: '\xff'", "f")


def test_extensions_and_words_keep_their_names() -> None:
    message = prototxt.parse(b"\xef\xbb\xbf[a.b_c]: X [type.example.com/t.M] { i: 1 }", "f")
    assert list(message.fields) == ["[a.b_c]", "[type.example.com/t.M]"]
    assert isinstance(message.fields["[a.b_c]"][0], Word)


def test_limits(tmp_path: Path) -> None:
    deep = prototxt.MOST_DEPTH
    prototxt.parse(b"m {" * deep + b"}" * deep, "f")
    with pytest.raises(UnsafeInput, match="nested"):
        prototxt.parse(b"m {" * (deep + 1) + b"}" * (deep + 1), "f")
    with pytest.raises(UnsafeInput, match="nested"):
        prototxt.parse(b"m: [{" * deep + b"}]" * deep, "f")
    with pytest.raises(UnsafeInput, match="too many values"):
        prototxt.parse(b"i:1 " * (prototxt.MOST_VALUES + 1), "f")
    with pytest.raises(UnsafeInput, match="too long"):
        prototxt.parse(b"s:'" + b"a" * (prototxt.MOST_TEXT + 1) + b"'", "f")
    path = tmp_path / "large"
    path.write_bytes(b" " * (prototxt.MOST_BYTES + 1))
    with pytest.raises(UnsafeInput, match="too large"):
        prototxt.read(str(path))
    with pytest.raises(NotFound):
        prototxt.read(str(tmp_path / "none"))


def test_mutated_texts_end_in_typed_errors() -> None:
    dice = random.Random(5)
    whole = "\n".join(SAMPLES).encode()
    for _ in range(1500):
        changed = bytearray(whole)
        for _ in range(dice.choice([1, 2, 5])):
            at = dice.randrange(len(changed))
            changed[at : at + dice.randrange(3)] = dice.choice(
                [b"{", b"}", b"[", b"]", b"<", b"'", b'"', b"\\", b":", b"\xff", b"", b"-", b"#"]
            )
        try:
            prototxt.parse(bytes(changed), "f")
        except DlvError:
            continue
