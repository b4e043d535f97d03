"""Templates as constructors: what they take, what they refuse, what they fill in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dlv.errors import UsageError
from dlv.network.graph import Network
from dlv.network.inference import attribute_faults
from dlv.network.json_form import read
from dlv.network.patterns import Habits, Template, build, parse, template
from dlv.network.vocabulary import OPS

MAP = ("B", 8, 16, 16)


def _built(text: str, shape: Any = MAP, habits: Habits | None = None) -> Any:
    (made,) = parse(text)
    return build(made, made.name or "n", (("x", 0),), shape, habits or Habits())


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("RELU", [Template("RELU")]),
        ("RELU()", [Template("RELU")]),
        (' RELU("relu9") ', [Template("RELU", None, "relu9")]),
        ('POOL("MAX", kernel=2)', [Template("POOL", "MAX", None, {"kernel": 2})]),
        ('POOL("MAX", "p", kernel=[2, 3])', [Template("POOL", "MAX", "p", {"kernel": [2, 3]})]),
        ('RELU(name="r")', [Template("RELU", None, "r")]),
        ('LOSS("l", name="nll")', [Template("LOSS", None, "l", {"name": "nll"})]),
        ("RELU(slope=-0.5)", [Template("RELU", None, None, {"slope": -0.5})]),
        ('ADD("s", also="x")', [Template("ADD", None, "s", {}, ("x",))]),
        ('ADD(also=["x", "y"])', [Template("ADD", None, None, {}, ("x", "y"))]),
        ("FULL(out=3, bias=false)", [Template("FULL", None, None, {"out": 3, "bias": False})]),
        ("[RELU(), ADD(const=1)]", [Template("RELU"), Template("ADD", None, None, {"const": 1})]),
        (
            'RESHAPE(kind="flatten")',
            [Template("RESHAPE", None, None, {"kind": "flatten"})],
        ),
    ],
)  # fmt: skip
def test_parsed(text: str, wanted: list[Template]) -> None:
    assert list(parse(text)) == wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a template"),
        ("RELU(", "not a template"),
        ("[]", "not a template"),
        ("3", "not a template"),
        ("RELU() + RELU()", "not a template"),
        ("os.system('x')", "not a template"),
        ("RELU(slope=open('x'))", "not a template"),
        ("RELU(**{})", "not a template"),
        ("RELU(3)", "not a template"),
        ("ADD(also=3)", "not a template"),
        ("(" * 300 + "RELU" + ")" * 300, "not a template"),
        ("RELU(" + "-" * 1900 + "1)", "not a template"),
        ("RELU" * 600, "not a template"),
        ("relu()", "no operation 'relu'"),
        ('OP("raw")', "no operation 'OP'"),
        ("POOL()", "POOL needs its variant"),
        ('POOL("MAXX")', "POOL needs its variant"),
        ('RELU("a", "b")', "RELU takes one name"),
        ('RELU("")', "name of a node"),
        ("CONV(outt=3)", "no attribute 'outt'"),
        ('RESHAPE(kind="flat")', "unknown kind 'flat'"),
    ],
)
def test_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse(text)


def test_did_you_mean() -> None:
    with pytest.raises(UsageError) as caught:
        parse("relu()")
    assert caught.value.did_you_mean == ["RELU"]
    with pytest.raises(UsageError) as caught:
        parse("CONV(outt=3)")
    assert caught.value.did_you_mean[0] == "out"


def test_defaults() -> None:
    node = _built('CONV("c2", out=64, kernel=3)')
    assert node.attrs == {
        "out": 64,
        "kernel": (3, 3),
        "stride": (1, 1),
        "pad": ((0, 0), (0, 0)),
        "dilation": (1, 1),
        "groups": 1,
        "bias": True,
        "layout": "kernel_last",
        "channels": "first",
    }
    assert node.params == {"weight": "c2.weight", "bias": "c2.bias"}
    assert "bias" not in _built("FULL(out=3, bias=false)").params
    assert _built("CONV(out=3, kernel=[3, 3, 3])", None).attrs["stride"] == (1, 1, 1)


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        ('NORM("BATCH")', {"weight", "bias", "running_mean", "running_var"}),
        ('NORM("LAYER")', {"weight", "bias"}),
        ('NORM("RMS")', {"weight"}),
        ('NORM("GROUP", groups=2)', {"weight", "bias"}),
        ('NORM("INSTANCE")', set()),
        ('NORM("LRN")', set()),
        ("ADD(const=1)", set()),
        ("ADD(shape=[8, 1, 1])", {"value"}),
        ('RNN("GRU", hidden=3)', {f"{kind}_l0" for kind in ("weight_ih", "weight_hh", "bias_ih")}
         | {"bias_hh_l0"}),
    ],
)  # fmt: skip
def test_tensors(text: str, slots: set[str]) -> None:
    assert set(_built(text).params) == slots


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("CONV(out=3)", "CONV needs the attribute 'kernel'"),
        ("CONV(kernel=3)", "CONV needs the attribute 'out'"),
        ('CONV(out="3", kernel=3)', "'out' is '3'"),
        ('POOL("MAX", kernel=2, size=[1, 1])', "cannot be combined"),
    ],
)
def test_incomplete(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        _built(text)


def test_axes_are_not_known() -> None:
    with pytest.raises(UsageError, match="number of axes is unknown"):
        _built("CONV(out=3, kernel=3)", None)


def test_every_operation_can_be_made() -> None:
    """With the attributes that it must have, the node is sound."""
    needed: dict[str, Any] = {"out": 4, "kernel": [1, 1], "rows": 3, "hidden": 2, "shape": [1]}
    for op in OPS.values():
        if op.name in ("OP", "INPUT", "RESHAPE"):
            continue
        for variant in op.variants or (None,):
            given = {k: v for k, v in needed.items() if k in {a.name for a in op.attributes}}
            if variant == "MEAN":
                del given["kernel"]
            given |= {"groups": 2} if variant == "GROUP" else {}
            made = template(op.name, *([variant] if variant else []), **given)
            assert attribute_faults(build(made, "n", (("x", 0),), MAP, Habits())) == []


def test_habits(plain: Callable[[str], Any]) -> None:
    form = plain("lenet")
    assert Habits.of(read(form)[0]).channels == "first"
    form["inputs"][0]["shape"] = ["B", 28, 28, 1]
    for node in form["nodes"]:
        if node["op"] in ("CONV", "POOL"):
            node["attrs"]["channels"] = "last"
    form["nodes"][0]["attrs"] |= {"layout": "depthwise"}
    form["nodes"][5]["attrs"] |= {"layout": "in_out"}
    network: Network = read(form)[0]
    habits = Habits.of(network)
    assert habits.layouts == {"CONV": "kernel_first", "DECONV": "kernel_first", "FULL": "in_out"}
    last = ("B", 16, 16, 8)
    assert _built("CONV(out=3, kernel=3)", last, habits).attrs["layout"] == "kernel_first"
    assert _built('NORM("BATCH")', last, habits).attrs["axis"] == 3
    assert _built('NORM("BATCH")', ("B", 8), habits).attrs["axis"] == 1
    assert _built("CONCAT", last, habits).attrs["axis"] == 3
    assert _built("CONV(out=3, kernel=3, channels='first')", MAP, habits).attrs["channels"] == (
        "first"
    )


def test_as_text() -> None:
    assert str(parse('POOL("MAX", "p", kernel=2)')[0]) == 'POOL("MAX", "p", kernel=2)'
