"""What a rule does not understand is kept as it is: attributes, inputs, versions, dtypes."""

from __future__ import annotations

import runpy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from dlv.adapters.onnx import model as operators
from dlv.adapters.onnx.network import READERS, SECOND
from dlv.adapters.onnx.values import FOLDED, FOLDED_BY, Literal, fold
from dlv.errors import DlvError
from tests.adapters.onnx.test_ops import CASES, made
from tests.onnx_models import array, constant, model, op
from tests.onnx_reading import (
    FAILURES,
    in_onnxruntime,
    in_torch,
    network_of,
    opened,
    random_input,
    words,
)
from tests.onnx_runs import difference

TOOLS = Path(__file__).resolve().parents[3] / "tools"
KNOWN = {*READERS, *SECOND, *FOLDED, "Shape", "Identity", "Constant"}


def test_the_table_is_that_of_the_schemas() -> None:
    written = runpy.run_path(str(TOOLS / "onnx_operators.py"))
    assert onnx.defs.onnx_opset_version() == operators.NEWEST_OPSET
    found = Path(operators.__file__).with_name("operators.json").read_text(encoding="utf-8")
    assert found == written["text"]()


def test_what_is_folded_reads_attributes_that_there_are() -> None:
    for kind, names in FOLDED_BY.items():
        forms = [operators.form("", kind, version) for version in range(1, 29)]
        there = {name for form in forms if form is not None for name in form.attributes}
        assert set(names) <= there, kind


def raws(made: onnx.ModelProto, folder: Path) -> list[str]:
    """The kinds of operators that stay ONNX's own."""
    return [word[5:] for word in words(network_of(made, folder)) if word.startswith("onnx:")]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.runs])
def test_an_unknown_attribute_keeps_its_operator(name: str, tmp_path: Path) -> None:
    """Whatever of it stands there, in the network or worked out: none is read without it."""
    whole = made(CASES[name])
    for place, node in enumerate(whole.graph.node):
        if node.op_type not in KNOWN or node.domain:
            continue
        for value in (1, 0.5, "text", [1, 2]):
            changed = onnx.ModelProto()
            changed.CopyFrom(whole)
            attribute = helper.make_attribute("never_heard_of", value)
            changed.graph.node[place].attribute.append(attribute)
            before = raws(whole, tmp_path).count(node.op_type)
            assert raws(changed, tmp_path).count(node.op_type) > before, node.op_type
            if node.op_type != "Conv":
                break


TRIED = {node.op_type for case in CASES.values() for node in case.nodes}
BOOLS = {"x": ("bool", [3, 4]), "z": ("bool", [3, 4])}
# Kinds without a case of their own: as most of them, of one tensor, but for these.
OTHERS: dict[str, tuple[str, Mapping[str, Any]]] = {
    **dict.fromkeys(("And", "Or", "Xor"), ("x z", BOOLS)),
    "Not": ("x", BOOLS),
    **dict.fromkeys(
        ("Min", "GreaterOrEqual", "Less", "LessOrEqual", "CastLike"),
        ("x z", {"x": [3, 4], "z": [3, 4]}),
    ),
    "Attention": ("q k v", {name: [2, 3, 4, 8] for name in "qkv"}),
    "RMSNormalization": ("x w", {"x": [3, 4]}),
}


@pytest.mark.parametrize("kind", sorted({*READERS, *SECOND} - TRIED))
def test_an_unknown_attribute_of_what_has_no_case(kind: str, tmp_path: Path) -> None:
    inputs, specs = OTHERS.get(kind, ("x", {"x": [3, 4]}))
    weights = {"w": array(4)} if "w" in inputs else {}
    more: list[dict[str, Any]] = [{}, {"a": 1}]
    plain, odd = (model([op(kind, inputs, **m)], specs, weights, opset=24) for m in more)
    assert raws(plain, tmp_path) == []
    assert raws(odd, tmp_path) == [kind]


Q4 = {"q": [2, 3, 4, 8], "k": [2, 3, 6, 8], "v": [2, 3, 6, 8]}
IMAGE = {"x": [2, 4, 5, 6]}
DECONV = {"w": array(4, 3, 3, 3)}
X = {"x": [3, 4]}


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


KEPT: dict[str, tuple[Any, Mapping[str, Any], Mapping[str, Any], int]] = {
    "left window": (op("Attention", "q k v", left_window_size=2), Q4, {}, 25),
    "right window": (op("Attention", "q k v", right_window_size=0), Q4, {}, 25),
    "softcap": (op("Attention", "q k v", softcap=2.0), Q4, {}, 25),
    "mask shorter than the keys": (op("Attention", "q k v m"), {**Q4, "m": [4, 1]}, {}, 24),
    "mask of one row": (op("Attention", "q k v m"), {**Q4, "m": [6]}, {}, 24),
    "keys that are padded": (op("Attention", "q k v - - - n"), {**Q4, "n": ("int64", [2])}, {}, 24),
    "output_shape above what the windows reach": (
        op("ConvTranspose", "x w", output_shape=[9, 9]),
        IMAGE,
        DECONV,
        21,
    ),
    "training of a dropout": (op("Dropout", "x r t"), X, {"r": np.float32(0.5), "t": True}, 21),
    "training of a normalisation": (
        op("BatchNormalization", "x s s s s", training_mode=1),
        IMAGE,
        {"s": np.abs(array(4))},
        21,
    ),
    "a power of two dtypes": (op("Pow", "i x"), {"i": ("int64", [3, 4]), **X}, {}, 21),
    "a remainder of fractions": (op("Mod", "x z", fmod=1), {**X, "z": [3, 4]}, {}, 21),
    "a mean of whole numbers": (op("ReduceMean", "i"), {"i": ("int32", [3, 4])}, {}, 21),
    "more axes than read": (op("Pad", "x p - a"), X, {"p": ints(1, 1), "a": ints(1)}, 21),
    "antialias": (
        op("Resize", "x - s", mode="linear", antialias=1),
        IMAGE,
        {"s": np.array([1, 1, 2, 2], np.float32)},
        21,
    ),
    "precision of the norm": (
        op("LayerNormalization", "x s", stash_type=16),
        X,
        {"s": array(4)},
        21,
    ),
    "pads next to auto_pad": (
        op("Conv", "x w", auto_pad="SAME_UPPER", pads=[1, 1, 1, 1]),
        IMAGE,
        {"w": array(4, 4, 3, 3)},
        21,
    ),
    "a cast to eight bits": (op("Cast", "x", to=17, saturate=0), X, {}, 21),
    "pieces by number": (op("Split", "x", "y z", num_outputs=2, axis=1), X, {}, 13),
    "a flag that is neither": (op("ReduceSum", "x", keepdims=2), X, {}, 13),
    "another such flag": (op("Attention", "q k v", is_causal=2), Q4, {}, 23),
    "the largest in any order": (op("TopK", "x k", "y z", sorted=0), X, {"k": ints(2)}, 11),
    "windows that runtimes count differently": (
        op("MaxPool", "x", kernel_shape=[2, 2], auto_pad="SAME_UPPER", dilations=[2, 2]),
        IMAGE,
        {},
        12,
    ),
    "a version that nobody knows": (op("Relu", "x"), X, {}, operators.NEWEST_OPSET + 1),
}


@pytest.mark.parametrize("name", KEPT)
def test_kept_as_it_is(name: str, tmp_path: Path) -> None:
    node, inputs, stored, opset = KEPT[name]
    weights = {key: np.asarray(value) for key, value in stored.items()}
    assert raws(model([node], inputs, weights, opset=opset), tmp_path) == [node.op_type]


READ: dict[str, tuple[Any, Mapping[str, Any], Mapping[str, Any], int]] = {
    "windows by default": (
        op("Attention", "q k v", left_window_size=-1, right_window_size=-1),
        Q4,
        {},
        25,
    ),
    "a mask of every key": (op("Attention", "q k v m"), {**Q4, "m": [4, 6]}, {}, 24),
    "what other modes ask for": (
        op(
            "Resize",
            "x - s",
            mode="linear",
            cubic_coeff_a=-0.75,
            nearest_mode="floor",
            coordinate_transformation_mode="half_pixel",
        ),
        IMAGE,
        {"s": np.array([1, 1, 2, 2], np.float32)},
        13,
    ),
    "a dropout that is off": (
        op("Dropout", "x r t"),
        X,
        {"r": np.float32(0.5), "t": np.array(False)},
        21,
    ),
    "pads of nothing beside auto_pad": (
        op("Conv", "x w", auto_pad="VALID", pads=[0, 0, 0, 0]),
        IMAGE,
        {"w": array(4, 4, 3, 3)},
        21,
    ),
    "output_shape below what the windows reach": (
        op("ConvTranspose", "x w", output_shape=[6, 7]),
        IMAGE,
        DECONV,
        21,
    ),
    "a default that is written down": (
        op("LayerNormalization", "x s", stash_type=1),
        X,
        {"s": array(4)},
        21,
    ),
}


@pytest.mark.parametrize("name", READ)
def test_read_all_the_same(name: str, tmp_path: Path) -> None:
    node, inputs, stored, opset = READ[name]
    weights = {key: np.asarray(value) for key, value in stored.items()}
    whole = model([node], inputs, weights, opset=opset)
    given = random_input(whole)
    with opened(whole, tmp_path) as checkpoint:
        assert checkpoint.network is not None
        assert not [word for word in words(checkpoint.network) if word.startswith("onnx:")]
        try:
            runs = in_onnxruntime(whole, given)
        except FAILURES:  # it is older, or stricter
            return
        for got, wanted in zip(in_torch(checkpoint, given), runs, strict=True):
            assert np.abs(got - wanted).max() < 1e-5


def test_equal_numbers_come_in_their_order(tmp_path: Path) -> None:
    whole = model(
        [constant("k", [3]), op("TopK", "x k", "v y", largest=0)],
        {"x": [2, 8]},
        outputs={"v": None, "y": None},
    )
    whole.graph.output[1].type.tensor_type.elem_type = 7
    given = {"x": np.zeros((2, 8), np.float32)}
    with opened(whole, tmp_path) as checkpoint:
        assert in_torch(checkpoint, given)[1].tolist() == [[0, 1, 2]] * 2


def numbers(*values: float, dtype: str = "int64", shape: Any = None) -> Literal:
    return Literal(dtype, (len(values),) if shape is None else shape, tuple(values))


@pytest.mark.parametrize(
    ("kind", "given", "attrs", "wanted"),
    [
        # What is worked out keeps its dtype, which is that of the first operand of a power.
        ("Pow", [numbers(3), numbers(2.0, dtype="float32")], {}, numbers(9)),
        (
            "Gather",
            [numbers(5, 6, dtype="int32"), numbers(1)],
            {"axis": 0},
            numbers(6, dtype="int32"),
        ),
        ("Concat", [numbers(5, dtype="int32")] * 2, {"axis": 0}, numbers(5, 5, dtype="int32")),
        ("Range", [numbers(n, dtype="int32", shape=()) for n in (0, 2, 1)], {}, None),
        (
            "Squeeze",
            [numbers(7, shape=(1, 1)), numbers(0)],
            {"kind": "Squeeze"},
            numbers(7, shape=(1,)),
        ),
        ("Squeeze", [numbers(7, shape=(1, 1))], {"kind": "Squeeze"}, numbers(7, shape=())),
        ("Max", [numbers(float("nan"), dtype="float32")] * 2, {}, "nothing"),
    ],
)
def test_worked_out(kind: str, given: list[Any], attrs: Mapping[str, Any], wanted: Any) -> None:
    found = fold(kind, given, attrs)
    if kind == "Range":
        wanted = numbers(0, 1, dtype="int32")
    assert found == (None if wanted == "nothing" else wanted)


# None with 0: onnxruntime divides by some before it looks at them, and takes the tests along.
VALUES: dict[str, Sequence[Any]] = {
    "int": [-1, 1, 2],
    "float": [0.0, 0.5, 2.0, -1.0],
    "ints": [[1], [1, 1], [2, 2], [1, 1, 1, 1], [3, 3]],
    "string": [
        *("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", "tanh", "linear", "nearest", "reflect"),
        *("edge", "wrap", "cubic", "align_corners", "asymmetric", "half_pixel", "floor", "ceil"),
    ],
}


def variants(whole: onnx.ModelProto, opset: int) -> Iterator[tuple[str, onnx.ModelProto]]:
    """The model with one attribute of one operator set to something else."""
    for place, node in enumerate(whole.graph.node):
        form = operators.form("", node.op_type, opset)
        attributes = {} if form is None or node.op_type == "Constant" else form.attributes
        for name, (kind, *_) in attributes.items():
            for value in VALUES.get(kind, ()):
                changed = onnx.ModelProto()
                changed.CopyFrom(whole)
                kept = [item for item in node.attribute if item.name != name]
                del changed.graph.node[place].attribute[:]
                changed.graph.node[place].attribute.extend(kept)
                changed.graph.node[place].attribute.append(helper.make_attribute(name, value))
                yield f"{node.op_type} {name}={value}", changed


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.runs])
def test_every_attribute_at_other_values(name: str, tmp_path: Path) -> None:
    """It is read as onnxruntime reads it, or kept, or cannot be run."""
    wrong = []
    for told, whole in variants(made(CASES[name]), CASES[name].opset):
        given = random_input(whole)
        try:
            wanted = in_onnxruntime(whole, given)
        except FAILURES:
            continue
        with opened(whole, tmp_path) as checkpoint:
            assert checkpoint.network is not None
            if any(word.startswith("onnx:") for word in words(checkpoint.network)):
                continue
            try:
                got = in_torch(checkpoint, given)
            except (RuntimeError, DlvError):
                continue
        if any(difference(*pair) > 1e-4 for pair in zip(got, wanted, strict=True)):
            wrong.append(told)
    assert wrong == []
