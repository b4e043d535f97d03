"""Deltas: null, and that all others are named."""

from __future__ import annotations

import pytest

from dlv.errors import NewerFormat
from dlv.pas.deltas import base_of, delta_of


def test_null_is_the_matrix_itself() -> None:
    assert delta_of(None) is None
    assert base_of(None) is None


@pytest.mark.parametrize("config", [{"id": "warp", "base": "ab"}, {"id": None}, {}])
def test_unknown_deltas_are_named(config: dict[str, object]) -> None:
    with pytest.raises(NewerFormat, match="delta"):
        delta_of(config)


def test_a_base_is_found_whatever_the_delta() -> None:
    assert base_of({"id": "warp", "base": "ab"}) == "ab"
    assert base_of({"id": "warp", "base": 7}) is None
