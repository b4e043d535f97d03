"""Opcodes of pickles: the table against pickletools, and the limits at their edges."""

from __future__ import annotations

import pickletools
import struct

import pytest

from dlv.adapters.torch.pickles import (
    MOST_MARKS,
    MOST_OPCODES,
    MOST_STACK,
    check_opcodes,
    instructions,
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
    with pytest.raises(Damaged, match="damaged"):
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
