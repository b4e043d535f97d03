"""dlv.adapters.torch.pickles against the pickle module, which reads the same bytes."""

from __future__ import annotations

import collections
import contextlib
import gc
import pickle
import pickletools
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.adapters.torch import pickles
from dlv.adapters.torch.pickles import (
    ALLOWED,
    MOST_MARKS,
    MOST_OPCODES,
    MOST_STACK,
    Call,
    Global,
    Kind,
    Mapping,
    Persistent,
    check_opcodes,
    instructions,
    kind_of_name,
    load,
    printable,
)
from dlv.errors import Damaged, UnsafeInput

REFUSED = {"INST", "OBJ", "EXT1", "EXT2", "EXT4", "PERSID", "NEXT_BUFFER", "READONLY_BUFFER"}
PROTOCOL_0 = {"INT", "LONG", "STRING", "UNICODE", "FLOAT", "GET", "PUT"}  # arguments in text
PEEKS = {"BINPUT", "LONG_BINPUT", "MEMOIZE"}
SPECIAL = REFUSED | PROTOCOL_0 | {"PROTO", "STOP", "MARK", "POP"}
# pickletools' marks for arguments of variable length; each is empty here
ARGUMENTS = {-1: b"a\nb\n", -2: b"\0", -3: bytes(4), -4: bytes(4), -5: bytes(8)}


def accepted(data: bytes) -> bool:
    try:
        check_opcodes(data, "p")
    except (Damaged, UnsafeInput):
        return False
    return True


@pytest.mark.parametrize(
    "op", [op for op in pickletools.opcodes if op.name not in SPECIAL], ids=lambda op: op.name
)
def test_stack_effect_as_in_the_standard_library(op: pickletools.OpcodeInfo) -> None:
    """With as many values as pickletools says it passes; with one less or one more it fails."""
    size = op.arg.n if op.arg is not None else 0
    code = op.code.encode("latin-1") + (ARGUMENTS[size] if size < 0 else bytes(size))
    needs = [kind.name for kind in op.stack_before if kind.name != "stackslice"]
    mark = b"(" if "mark" in needs else b""
    takes = 1 if op.name in PEEKS else len(needs) - len(mark)
    leaves = 1 if op.name in PEEKS else len(op.stack_after)
    tail = b"0" * (leaves - 1) if leaves else b"N"
    assert accepted(b"\x80\x05" + b"N" * takes + mark + code + tail + b".")
    assert not accepted(b"\x80\x05" + b"N" * (takes + 1) + mark + code + tail + b".")
    if takes:
        assert not accepted(b"\x80\x05" + b"N" * (takes - 1) + mark + code + tail + b".")


@pytest.mark.parametrize("name", sorted(PROTOCOL_0))
def test_protocol_0_is_damage(name: str) -> None:
    code = next(op.code for op in pickletools.opcodes if op.name == name).encode("latin-1")
    with pytest.raises(Damaged, match="corrupt"):
        check_opcodes(b"\x80\x02" + code + b"0\n.", "p")


def test_limits_at_their_edges() -> None:
    assert accepted(b"\x80\x02" + b"(" * MOST_MARKS + b"t" * MOST_MARKS + b".")
    assert not accepted(b"\x80\x02" + b"(" * (MOST_MARKS + 1) + b"t" * (MOST_MARKS + 1) + b".")
    assert accepted(b"\x80\x02(" + b"N" * MOST_STACK + b"t.")
    assert not accepted(b"\x80\x02(" + b"N" * (MOST_STACK + 1) + b"t.")
    assert accepted(b"\x80\x02N" + b"N0" * (MOST_OPCODES // 2 - 2) + b".")
    assert not accepted(b"\x80\x02N" + b"N0" * (MOST_OPCODES // 2) + b".")
    assert accepted(b"\x80\x02Nr" + struct.pack("<I", 3) + b".")
    assert not accepted(b"\x80\x02Nr" + struct.pack("<I", 4) + b".")
    assert accepted(b"\x80\x04\x95" + struct.pack("<Q", 2) + b"N.")
    assert not accepted(b"\x80\x04\x95" + struct.pack("<Q", 3) + b"N.")


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused(name: str) -> None:
    code = next(op.code for op in pickletools.opcodes if op.name == name).encode("latin-1")
    with pytest.raises(UnsafeInput, match=name):
        check_opcodes(b"\x80\x05" + code + b"\x01\n\x01\n.", "p")


def test_arguments_as_in_the_standard_library() -> None:
    data = (
        b"\x80\x05K\xffM\xff\xfeJ\xff\xff\xff\xff\x8a\x02\xff\x80\x8b\x01\0\0\0\x7fG?\xf8\0\0\0\0\0\0"
        b"X\x02\0\0\0\xc3\xa9\x8c\x01a\x8d\x01\0\0\0\0\0\0\0bC\x01cB\x01\0\0\0d\x8e\x01\0\0\0\0\0\0\0e"
        b"U\x01fT\x01\0\0\0g" + b"0" * 14 + b"N."
    )
    ours = [argument for _, name, argument in instructions(data, "p") if name == "PUSH"]
    theirs = [a for op, a, _ in pickletools.genops(data) if a is not None and op.name != "PROTO"]
    assert ours == theirs


NOTHING_OF = ("os", "posix", "nt", "sys", "subprocess", "importlib", "shutil", "socket", "ctypes")


def test_no_name_that_does_anything() -> None:
    for module, name in ALLOWED:
        assert module.split(".")[0] not in NOTHING_OF
        assert "." not in name
        assert name not in ("eval", "exec", "getattr", "setattr", "open", "compile", "__import__")


def test_exact_pairs_only() -> None:
    assert kind_of_name("collections", "OrderedDict", "p") is Kind.MAPPING
    assert kind_of_name("torch", "float32", "p") is Kind.NAME
    for module, name in [
        ("Collections", "OrderedDict"),
        ("collections ", "OrderedDict"),
        ("", "collections.OrderedDict"),
        ("collections.OrderedDict", ""),
        ("torch", "_utils._rebuild_tensor_v2"),
        ("torch", "load"),
    ]:
        with pytest.raises(UnsafeInput):
            kind_of_name(module, name, "p")


def test_a_saved_module_is_told_apart() -> None:
    with pytest.raises(UnsafeInput, match="saved object") as caught:
        kind_of_name("torch.nn.modules.conv", "Conv2d", "p")
    assert "state_dict" in (caught.value.hint or "")


def test_shown_is_short_and_printable() -> None:
    assert printable("a.b") == "a.b"
    assert printable("a\n\x1b[2Jé\ud800") == "a\\x0a\\x1b[2J\\xe9\\ud800"
    assert len(printable("x" * 10_000)) < 200


KEYS = st.one_of(
    st.text(max_size=5),
    st.integers(-(2**63), 2**63),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False),
)
PLAIN = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False),
        st.text(),
        st.binary(),
        st.sets(st.integers(), max_size=4),
        st.frozensets(st.text(max_size=3), max_size=4),
        st.complex_numbers(allow_nan=False),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.tuples(inner, inner),
        st.lists(inner, max_size=5).map(tuple),
        st.dictionaries(KEYS, inner, max_size=5),
        st.dictionaries(st.text(max_size=3), inner, max_size=3).map(collections.OrderedDict),
        st.dictionaries(st.text(max_size=3), inner, max_size=3).map(
            lambda d: collections.defaultdict(list, d)
        ),
    ),
    max_leaves=20,
)


def tag(key: Any) -> str:
    return f"{type(key).__name__} {key!r}"


def described(value: Any) -> Any:
    """A form of descriptors that can be compared, without what they cannot tell apart."""
    if isinstance(value, Mapping):
        return {"dict": {tag(key): described(item) for key, item in value.items()}}
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(described, value)]
    if isinstance(value, Call):
        name, arguments = str(value.function), value.arguments
        if name == "_codecs.encode":
            return tag(arguments[0].encode(arguments[1]))
        if name in ("__builtin__.bytes", "builtins.bytes"):
            return tag(bytes(*arguments))
        assert name in ("__builtin__.complex", "builtins.complex")
        return tag(complex(*arguments))
    return tag(value)


def real(value: Any) -> Any:
    if isinstance(value, dict):
        return {"dict": {tag(key): real(item) for key, item in value.items()}}
    if isinstance(value, set):
        return ["list", *map(real, value)]
    if isinstance(value, frozenset):
        return ["tuple", *map(real, value)]
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(real, value)]
    return tag(value)


@settings(deadline=None)
@given(PLAIN, st.integers(2, 5))
def test_as_the_pickle_module(value: Any, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    # Sets come back in any order: compare with what the same bytes make there.
    found, wanted = described(load(data, "p")), real(pickle.loads(data))
    assert sort_sets(found) == sort_sets(wanted)


def sort_sets(value: Any) -> Any:
    if isinstance(value, list):
        head, *rest = value
        return [head, *sorted(map(sort_sets, rest), key=repr)]
    if isinstance(value, dict):
        return {key: sort_sets(item) for key, item in value.items()}
    return value


def test_order_of_lists_and_dicts() -> None:
    value = {"b": [3, 1, 2], "a": (9, 8), 5: [], "b2": {2: 1, 1: 2}}
    for protocol in range(2, 6):
        found = load(pickle.dumps(value, protocol), "p")
        assert [key for key, _ in found.items()] == ["b", "a", 5, "b2"]
        assert found.get("b") == [3, 1, 2]
        assert found.get("a") == (9, 8)
        assert list(found.get("b2").items()) == [(2, 1), (1, 2)]
        assert found.get("5") is None  # a number is not its text


def test_keys_are_not_their_text() -> None:
    value = {"None": 1, None: 2, "5": 3, 5: 4, "False": 5, False: 6, "0.5": 7, 0.5: 8, (1,): 9}
    found = load(pickle.dumps(value, 2), "p")
    assert list(found.items()) == list(value.items())
    assert [found.get(key) for key in ("None", "5", "False", "0.5")] == [1, 3, 5, 7]


def test_shared_and_circular() -> None:
    inner: list[Any] = [1]
    inner.append(inner)
    found = load(pickle.dumps([inner, inner], 2), "p")
    assert found[0] is found[1]
    assert found[0][1] is found[0]
    deep: Any = ()
    for _ in range(200_000):
        deep = (deep,)
    pickled = b"\x80\x02)" + b"\x85" * 200_000 + b"."
    held = load(pickled, "p")
    del held, deep
    gc.collect()


def test_calls_are_kept_not_made() -> None:
    found = load(b"\x80\x02cnumpy\ndtype\nX\x02\x00\x00\x00f8\x85R}b.", "p")
    assert isinstance(found, Call)
    assert str(found.function) == "numpy.dtype"
    assert found.arguments == ("f8",)
    assert isinstance(found.state, Mapping)
    reference = load(b"\x80\x02K\x07Q.", "p")
    assert isinstance(reference, Persistent)
    assert reference.identity == 7
    name = load(b"\x80\x04\x8c\x05torch\x8c\x07float32\x93.", "p")
    assert isinstance(name, Global)
    assert (name.module, name.name) == ("torch", "float32")


def test_namespaces_and_attributes() -> None:
    space = load(b"\x80\x02cargparse\nNamespace\n)\x81}X\x02\x00\x00\x00lrK\x05sb.", "p")
    assert space.get("lr") == 5
    ordered = load(b"\x80\x02ccollections\nOrderedDict\n)R}X\x01\x00\x00\x00_K\x05sb.", "p")
    assert len(ordered) == 0  # an attribute is not an item
    assert ordered.state.get("_") == 5
    counted = load(pickle.dumps(collections.Counter("aab"), 2), "p")
    assert dict(counted.items()) == {"a": 2, "b": 1}
    queue = load(pickle.dumps(collections.deque([1, 2], maxlen=5), 4), "p")
    assert queue == [1, 2]


def test_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "MOST_BYTES", 3)
    with pytest.raises(UnsafeInput, match="too large"):
        load(b"\x80\x02N.", "p")


@pytest.mark.parametrize(
    "call",
    [
        b"ccollections\nOrderedDict\n",  # of pairs
        b"c__builtin__\nlist\n",
        b"c__builtin__\nfrozenset\n",
    ],
)
def test_copies_are_counted(monkeypatch: pytest.MonkeyPatch, call: bytes) -> None:
    monkeypatch.setattr(pickles, "MOST_COPIED", 100)
    pairs = b"](" + b"NN\x86" * 60 + b"e\x85q\x000"
    assert load(b"\x80\x02" + pairs + call + b"h\x00R.", "p") is not None
    with pytest.raises(UnsafeInput, match="repeats"):
        load(b"\x80\x02" + pairs + (call + b"h\x00R") * 2 + b"\x86.", "p")


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes(data: bytes) -> None:
    with contextlib.suppress(UnsafeInput, Damaged):
        load(b"\x80\x04" + data + b".", "p")
