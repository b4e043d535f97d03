"""dlv.adapters.registry: every loadable format has its adapter."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dlv.adapters.detect import ROLES
from dlv.adapters.registry import READERS, adapter
from dlv.errors import UnsafeInput, UsageError


@pytest.mark.parametrize("name", READERS)
def test_a_reader_knows_its_format(name: str) -> None:
    """Two formats of one module, as npz and npy, have one adapter."""
    assert adapter(adapter(name).FORMAT) is adapter(name)
    assert ROLES[name] in ("weights", "network")


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
