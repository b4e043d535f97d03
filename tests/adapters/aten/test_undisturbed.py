"""dlv.adapters.aten.live: attributes, random numbers and streams are put back."""

from __future__ import annotations

import logging
import random
import sys
import threading
import warnings
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="these are torch modules: dlv[torch]")

from torch import nn  # noqa: E402

from dlv.adapters.aten.live import quiet, same_numbers, undisturbed  # noqa: E402


def test_attributes() -> None:
    module = nn.Sequential(nn.Linear(2, 2))
    held: Any = module[0]
    held.items, held.table, held.names = [1], {"a": 1}, {"x"}
    held.gone = "still here"
    weight, items = held.weight, held.items
    try:
        with undisturbed(torch, module):
            held.items.append(2)
            held.table.update(b=2)
            held.names.clear()
            held.weight = nn.Parameter(torch.zeros(2, 2))
            held.register_buffer("more", torch.zeros(1))
            held.training = False
            held.new = 1
            del held.gone
            raise KeyError
    except KeyError:
        pass
    assert held.weight is weight
    assert held.items is items
    assert (held.items, held.table, held.names) == ([1], {"a": 1}, {"x"})
    assert held.training
    assert held.gone == "still here"
    assert not hasattr(held, "new")
    assert list(module.state_dict()) == ["0.weight", "0.bias"]


def test_random_numbers() -> None:
    with same_numbers(torch):
        first = random.random(), np.random.rand(), torch.rand(1).item()
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == first


def test_this_thread_is_quiet_and_others_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("torch.something")
    handler = logging.StreamHandler(sys.stderr)
    logger.addHandler(handler)

    def other() -> None:
        print("from another thread", file=sys.stderr)
        logger.warning("logged there")

    try:
        with quiet():
            print("from here", file=sys.stderr)
            logger.warning("logged here")
            warnings.warn("a warning", stacklevel=1)
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        logger.warning("logged afterwards")
    finally:
        logger.removeHandler(handler)
    assert handler.filters == []
    said = capsys.readouterr().err
    assert said == "from another thread\nlogged there\nlogged afterwards\n"
