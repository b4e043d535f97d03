from __future__ import annotations

from typing import Any

import pytest

from dlv.network.fields import FieldError, Kind
from dlv.network.ops.op import Default
from dlv.network.ops.shape import SIZE_KINDS
from dlv.network.vocabulary import OPS, attributes, axes_of, complete, slots

VALUES: dict[Kind, Any] = {
    Kind.INT: 1,
    Kind.FLOAT: 0.5,
    Kind.BOOL: True,
    Kind.TEXT: "x",
    Kind.DTYPE: "float32",
    Kind.INTS: [1],
    Kind.AXES: [0],
    Kind.SHAPE: [1],
    Kind.PER_AXIS: [1, 1],
    Kind.PER_AXIS_OR_NULL: [1, 1],
    Kind.PAIRS: [1, 1],
}
# op, variant, kind of RESHAPE
FORMS = [
    (op.name, variant, kind)
    for op in OPS.values()
    for variant in op.variants or (None,)
    for kind in (op.kinds or (None,))
]


def test_every_op_of_the_design_is_there() -> None:
    words = (
        "INPUT LOSS CONV DECONV FULL EMBED POOL NORM RELU ACT SOFTMAX CONCAT DROPOUT ADD MUL "
        "ATTENTION RNN RESHAPE OP"
    )
    assert set(OPS) == set(words.split())
    assert set(OPS["NORM"].variants) == {"BATCH", "LAYER", "RMS", "GROUP", "LRN", "INSTANCE"}
    assert set(OPS["ACT"].variants) == {"GELU", "SILU", "SIGMOID", "TANH", "RELU6"}
    assert set(OPS["RESHAPE"].kinds) > SIZE_KINDS


@pytest.mark.parametrize(("op", "variant", "kind"), FORMS)
def test_required_attributes_suffice_and_completing_twice_changes_nothing(
    op: str, variant: str | None, kind: str | None
) -> None:
    known = attributes(op, variant, {} if kind is None else {"kind": kind})
    given = {
        name: VALUES[attribute.kind]
        for name, attribute in known.items()
        if attribute.default is Default.REQUIRED
    }
    if kind is not None:
        given["kind"] = kind
    full = complete(op, variant, given)
    assert list(full) == list(known)
    assert complete(op, variant, full) == full
    for name, attribute in known.items():
        if attribute.default is not Default.REQUIRED:
            continue
        with pytest.raises(FieldError, match=f"needs the attribute '{name}'"):
            complete(op, variant, {k: v for k, v in given.items() if k != name})


def test_defaults_of_a_convolution() -> None:
    found = complete("CONV", None, {"out": 8, "kernel": [3, 5]}, params=("weight",))
    assert found == {
        "out": 8,
        "kernel": (3, 5),
        "stride": (1, 1),
        "pad": ((0, 0), (0, 0)),
        "dilation": (1, 1),
        "groups": 1,
        "bias": False,
        "layout": "kernel_last",
        "channels": "first",
    }
    assert complete("CONV", None, {"out": 8, "kernel": 3}, axes=1, params=("weight", "bias"))[
        "bias"
    ]


def test_attributes_follow_the_variant() -> None:
    assert "count_pad" in attributes("POOL", "AVG")
    assert "count_pad" not in attributes("POOL", "MAX")
    assert set(attributes("POOL", "MEAN")) == {"axis", "keep"}
    assert complete("NORM", "LAYER", {})["axis"] == -1
    assert complete("NORM", "BATCH", {})["axis"] == 1
    assert complete("NORM", "RMS", {})["eps"] is None


def test_an_adaptive_pool_has_no_window() -> None:
    found = complete("POOL", "AVG", {"size": [None, 7]})
    assert found["size"] == (None, 7)
    assert found["kernel"] is None
    assert found["stride"] is None
    with pytest.raises(FieldError, match="cannot be combined"):
        complete("POOL", "AVG", {"size": [1, 1], "kernel": [2, 2]})


def test_typing_errors_get_a_suggestion() -> None:
    with pytest.raises(FieldError) as caught:
        complete("CONV", None, {"out": 1, "kernel": [1], "strid": 2})
    assert caught.value.did_you_mean == ["stride"]
    with pytest.raises(FieldError) as caught:
        complete("RESHAPE", None, {"kind": "flaten"})
    assert caught.value.did_you_mean == ["flatten"]
    with pytest.raises(FieldError) as caught:
        complete("ACT", "GELU", {"approximate": "tan"})
    assert caught.value.did_you_mean == ["tanh"]
    with pytest.raises(FieldError, match="may not be null"):
        complete("CONV", None, {"out": None, "kernel": [1]})


def test_lists_must_agree_on_the_axes() -> None:
    with pytest.raises(FieldError, match="stride"):
        complete("CONV", None, {"out": 1, "kernel": [1, 1], "stride": [1, 1, 1]})
    assert axes_of("CONV", None, {"kernel": 3, "pad": [[0, 1], [1, 1]]})[0] == 2
    assert axes_of("CONV", None, {"kernel": 3})[0] is None


def test_slots_of_recurrent_layers() -> None:
    attrs = complete("RNN", "LSTM", {"hidden": 4, "layers": 2, "bidirectional": True})
    names = [slot.name for slot in slots("RNN", "LSTM", attrs)]
    assert len(names) == 16
    assert names[:5] == [
        "weight_ih_l0",
        "weight_hh_l0",
        "bias_ih_l0",
        "bias_hh_l0",
        "weight_ih_l0_reverse",
    ]


def test_buffers_are_the_running_statistics() -> None:
    found = {slot.name: slot.buffer for slot in slots("NORM", "BATCH", {})}
    assert found == {"weight": False, "bias": False, "running_mean": True, "running_var": True}
    assert [slot.name for slot in slots("NORM", "RMS", {})] == ["weight"]
    assert slots("NORM", "LRN", {}) == ()
