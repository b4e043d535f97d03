"""One node and its layer, without a network around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dlv.network.graph import Node
from dlv.network.vocabulary import complete

Make = Callable[..., Node]


@pytest.fixture(scope="session")
def node() -> Make:
    """node(op, variant=, slots=, **attributes)."""

    def make(
        op: str, variant: str | None = None, slots: tuple[str, ...] = (), **attrs: Any
    ) -> Node:
        params = {slot: f"n.{slot}" for slot in slots}
        return Node("n", op, variant, complete(op, variant, attrs, params=params), (), params)

    return make
