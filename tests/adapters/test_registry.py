"""dlv.adapters.registry: every loadable format has its adapter."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dlv.adapters.detect import LOADERS
from dlv.adapters.registry import ADAPTERS, adapter
from dlv.errors import UnsafeInput, UsageError


def test_the_two_tables_agree() -> None:
    assert {name: vars(module)["__name__"] for name, module in ADAPTERS.items()} == LOADERS
    for name in ADAPTERS:
        assert ADAPTERS[adapter(name).FORMAT] is adapter(name)


def test_pickles_are_refused_with_a_way_out() -> None:
    with pytest.raises(UnsafeInput) as caught:
        adapter("pickle")
    assert "--as file" in (caught.value.hint or "")


def test_formats_without_adapter() -> None:
    with pytest.raises(UsageError, match="zip"):
        adapter("zip")


def test_loads_no_third_party_package() -> None:
    code = (
        "import sys, dlv.adapters.registry;"
        "print({'numpy', 'torch', 'yaml', 'safetensors'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
