"""No idiom of the table gives another number without a word, and none a traceback.

`python -m tests.idioms.run` shows the table, `--refused FILE` writes what is refused anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is the oracle: dlv[torch]")
pytest.importorskip("onnxruntime", reason="one of the engines")

from tests.idioms import run  # noqa: E402
from tests.idioms.cells import CELLS, REFUSED, Trial  # noqa: E402
from tests.idioms.table import IDIOMS  # noqa: E402

# A few of each subject, in every run of the tests; all of them in the slow ones.
QUICK = {
    "column_set", "buffer_filled", "yolo_sigmoid", "through_transpose", "through_chunk",
    "boolean_mask_set", "earlier_view_read", "in_a_loop", "InputWritten", "residual_with_view",
    "InplaceResidual", "ShiftedWindows", "top_p_filter", "DropPath", "AuxiliaryHead",
    "DetectionHead", "LayerDrop", "DropoutAlways", "Sampled", "RunningMeanByHand",
    "KeyValueCache", "FrozenNorm", "ClippedWeights", "dict_out", "batch_in_arithmetic",
    "batch_specialised_three", "branch_on_values", "item_of_a_value", "CrossAttention",
    "EncoderPadded", "scatter_added", "FrozenBatchNorm",
}  # fmt: skip
# What torch says of the modules themselves.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{start}")
    for start in (
        "`torch.nn.utils.weight_norm` is deprecated",
        "LSTM with projections",
        "Using padding='same'",
        "The reduce argument of torch.scatter",
    )
]
MAY = {
    tuple(line.split()) for line in Path(__file__).with_name("refused.txt").read_text().splitlines()
}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in IDIOMS],
)
def test_the_same_or_refused(name: str) -> None:
    row = Trial(IDIOMS[name]).row(CELLS)
    assert {cell: f"{found.kind}: {found.text}" for cell, found in row.bad.items()} == {}
    refused = {(name, cell) for cell, found in row.cells.items() if found.kind == REFUSED}
    assert refused <= MAY | {(name, "numpy"), (name, "pt2-numpy")}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(IDIOMS))
def test_cut_and_edited_at_every_node(name: str) -> None:
    row = Trial(IDIOMS[name], all_nodes=True).row(["slice", "insert"])
    assert row.bad == {}


def test_the_quick_ones_are_there() -> None:
    assert IDIOMS.keys() >= QUICK
    assert {IDIOMS[name].subject for name in QUICK} >= {"writes", "modes", "calls", "norms"}
    assert len(run.SUBJECTS) == len({each.subject for each in IDIOMS.values()})
