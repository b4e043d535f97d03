"""dlv.adapters.torch.pickles: what is on the list, and how the rest is refused."""

from __future__ import annotations

import pytest

from dlv.adapters.torch.pickles import ALLOWED, Kind, kind_of_name, printable
from dlv.errors import UnsafeInput

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
    with pytest.raises(UnsafeInput, match="saved module") as caught:
        kind_of_name("torch.nn.modules.conv", "Conv2d", "p")
    assert "state_dict" in (caught.value.hint or "")


def test_shown_is_short_and_printable() -> None:
    assert printable("a.b") == "a.b"
    assert printable("a\n\x1b[2Jé\ud800") == "a\\x0a\\x1b[2J\\xe9\\ud800"
    assert len(printable("x" * 10_000)) < 200
