"""Fifteen networks with CONCAT, residuals and shared weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.network.reused.sketch import Sketch

WINDOW: dict[str, Any] = {"kernel": [2, 2], "stride": [2, 2]}


def inception() -> Sketch:
    """Two branches, joined and flattened."""
    net = Sketch(x=(3, 8, 8))
    net.relu("rs", net.conv("stem", "x", 4))
    net.relu("ra", net.conv("ca", "rs", 5))
    net.relu("rb", net.conv("cb", "rs", 3, 1))
    net.add("pool", "POOL", net.cat("cat", "ra", "rb"), variant="MAX", **WINDOW)
    net.full("fc", net.add("flat", "RESHAPE", "pool", kind="flatten", _places=16), 9)
    net.full("head", net.relu("rf", "fc"), 5)
    return net


def nested() -> Sketch:
    """A CONCAT of CONCATs, a layer between them."""
    net = Sketch(x=(3, 6, 6))
    for name, out in (("a", 3), ("b", 4), ("c", 2), ("d", 3)):
        net.relu(f"r{name}", net.conv(f"c{name}", "x", out))
    net.cat("in1", "ra", "rb")
    net.cat("in2", "rc", net.relu("mid", "in1"))
    net.cat("out", "in2", "rd", "in1")
    net.relu("rj", net.conv("join", "out", 6, 1))
    return net.head("rj")


def pools() -> Sketch:
    """Branches without weights of their own beside one with."""
    net = Sketch(x=(3, 6, 6))
    net.relu("rs", net.conv("stem", "x", 4))
    same: dict[str, Any] = {"kernel": [3, 3], "stride": [1, 1], "pad": 1}
    net.add("pm", "POOL", "rs", variant="MAX", **same)
    net.add("pa", "POOL", "rs", variant="AVG", kernel=[1, 1], stride=[1, 1])
    net.conv("c1", "rs", 3)
    net.cat("cat", "pm", "c1", "pa", "rs")
    net.conv("join", net.norm("bn", "cat"), 5)
    return net.head("join")


def twice() -> Sketch:
    """The same branch several times."""
    net = Sketch(x=(3, 5, 5))
    net.relu("ra", net.conv("ca", "x", 4))
    net.add("da", "DROPOUT", "ra", p=0.5)
    net.cat("cat", "ra", net.conv("cb", "x", 3), "ra", "da")
    net.relu("rj", net.conv("join", "cat", 6))
    return net.head("rj")


def residuals() -> Sketch:
    """Branches that are sums."""
    net = Sketch(x=(3, 6, 6))
    net.relu("rs", net.conv("stem", "x", 4))
    net.add("s1", "ADD", "rs", net.conv("f1", "rs", 4))
    net.add("s2", "ADD", "s1", net.relu("r2", net.conv("f2", "s1", 4)))
    net.cat("cat", "s1", net.conv("side", "rs", 3), "s2")
    net.conv("join", net.relu("rj", "cat"), 6)
    return net.head("join")


def grouped() -> Sketch:
    """Norms and a convolution in groups behind a CONCAT."""
    net = Sketch(x=(3, 6, 6))
    net.relu("ra", net.conv("ca", "x", 4))
    net.relu("rb", net.conv("cb", "x", 4))
    net.norm("bn", net.cat("cat", "ra", "rb"))
    net.add("gn", "NORM", "bn", variant="GROUP", groups=2, slots=("weight", "bias"))
    net.relu("rg", net.conv("group", "gn", 6, groups=2))
    net.conv("join", "rg", 5)
    return net.head("join")


def depthwise() -> Sketch:
    """A convolution of each channel for itself behind a CONCAT."""
    net = Sketch(x=(3, 6, 6))
    net.relu("ra", net.conv("ca", "x", 3))
    net.norm("rb", net.conv("cb", "x", 5))
    net.cat("cat", "rb", "ra")
    net.relu("rd", net.conv("deep", "cat", 16, groups=8))
    net.norm("bn", "rd")
    net.conv("join", "bn", 6, 1)
    return net.head("join")


def siamese() -> Sketch:
    """One layer for two inputs, both joined."""
    net = Sketch(x=(3, 5, 5), y=(3, 5, 5))
    for each in "xy":
        net.conv(f"f{each}", each, 4, shared="twin")
        net.relu(f"r{each}", f"f{each}")
    net.cat("cat", "ry", net.conv("own", "x", 2), "rx")
    net.relu("rj", net.conv("join", "cat", 6))
    return net.head("rj")


def dense() -> Sketch:
    """A dense block: each layer reads all that came before."""
    net = Sketch(x=(3, 5, 5))
    parts = [net.conv("stem", "x", 4)]
    for number in range(3):
        name = net.cat(f"cat{number}", *reversed(parts)) if number else parts[0]
        name = net.relu(f"r{number}", net.norm(f"bn{number}", name))
        parts.append(net.conv(f"grow{number}", name, 3))
    net.cat("last", *parts)
    return net.head("last")


def unet() -> Sketch:
    """Upwards again beside what was kept, DECONV behind a CONCAT."""
    net = Sketch(x=(2, 8, 8))
    net.relu("d1", net.conv("c1", "x", 4))
    net.add("p1", "POOL", "d1", variant="MAX", **WINDOW)
    net.relu("d2", net.conv("c2", "p1", 5))
    net.cat("low", "d2", net.conv("c3", "d2", 3))
    net.add("up", "DECONV", "low", out=4, **WINDOW, slots=("weight", "bias"))
    net.cat("cat", "up", "d1")
    net.add(
        *("upg", "DECONV", "cat"), out=6, groups=2, kernel=[1, 1], stride=[1, 1],
        slots=("weight", "bias"),
    )  # fmt: skip
    return net.head("upg")


def attention() -> Sketch:
    """Tokens with joined features, a norm and ATTENTION behind them."""
    net = Sketch(x=(6, 5))
    net.full("fa", "x", 4)
    net.add("ta", "ACT", "fa", variant="TANH")
    net.cat("cat", "ta", net.relu("rb", net.full("fb", "x", 4)), axis=-1)
    net.add("ln", "NORM", "cat", variant="LAYER", slots=("weight", "bias"))
    net.full("q", "ln", 8)
    net.full("k", "ln", 8)
    net.add("att", "ATTENTION", "q", "k", "ln", heads=2)
    net.add("sum", "ADD", "cat", net.full("proj", "att", 8))
    net.full("head", net.add("first", "RESHAPE", "sum", kind="select", axis=1, index=0), 5)
    return net


def recurrent() -> Sketch:
    """A recurrent layer behind a CONCAT, and before one."""
    net = Sketch(x=(6, 5))
    net.cat("cat", net.relu("ra", net.full("fa", "x", 4)), net.full("fb", "x", 3), axis=2)
    slots = [f"{kind}_{what}_l0" for what in ("ih", "hh") for kind in ("weight", "bias")]
    net.add("lstm", "RNN", "cat", variant="LSTM", hidden=4, batch_first=True, slots=slots)
    net.cat("both", "cat", "lstm", axis=2)
    net.full("fc", "both", 6)
    net.add("last", "RESHAPE", "fc", kind="select", axis=1, index=-1)
    net.full("head", net.relu("rl", "last"), 5)
    return net


def chunks() -> Sketch:
    """Parts cut from a CONCAT, one of them worked on, joined again in another order."""
    net = Sketch(x=(3, 5, 5))
    net.relu("ra", net.conv("ca", "x", 4))
    net.cat("cat", "ra", net.conv("cb", "x", 4))
    net.add("sp", "RESHAPE", "cat", kind="split", axis=1, sizes=[4, 4])
    net.relu("r2", net.conv("c2", ("sp", 1), 5))
    net.cat("again", "r2", ("sp", 0))
    net.add("some", "RESHAPE", "cat", kind="slice", axis=1, start=2, end=6)
    net.cat("all", "again", net.conv("c3", "some", 3))
    net.conv("join", "all", 6)
    return net.head("join")


def flattened() -> Sketch:
    """Maps that are flattened, then joined with numbers; weights stored the other way round."""
    net = Sketch(x=(3, 4, 4), y=(6,))
    net.relu("ra", net.conv("ca", "x", 3))
    net.add("fa", "RESHAPE", "ra", kind="flatten", _places=16)
    net.add("fb", "RESHAPE", net.conv("cb", "x", 2), kind="flatten", _places=16)
    net.cat("cat", "fa", net.full("fy", "y", 4), "fb", "y")
    net.full("fc", net.relu("rc", "cat"), 7, layout="in_out")
    net.full("head", net.cat("skip", "fc", "fy"), 5)
    return net


def shared() -> Sketch:
    """One layer that reads two joined ones, and weights in a chain used twice."""
    net = Sketch(x=(7,))
    net.full("fa", "x", 4)
    net.relu("ra", "fa")
    net.full("fb", "x", 3)
    net.cat("one", "ra", "fb")
    net.cat("two", net.add("ta", "ACT", "fa", variant="TANH"), net.relu("rb", "fb"))
    net.full("h1", "one", 7, shared="h")
    net.full("h2", "two", 7, shared="h")
    net.add("sum", "ADD", "h1", "h2")
    net.full("h3", net.relu("rs", "sum"), 7, shared="h")
    net.full("head", net.cat("end", "h3", "sum"), 5)
    return net


SKETCHES: list[Callable[[], Sketch]] = [
    *(inception, nested, pools, twice, residuals, grouped, depthwise, siamese),
    *(dense, unet, attention, recurrent, chunks, flattened, shared),
]
