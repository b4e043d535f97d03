"""Networks that several tests look at, written by hand as plain JSON, and random ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import strategies as st

from dlv.network.graph import Network, Node
from dlv.network.inference import input_shapes, node_shapes
from dlv.network.json_form import read
from dlv.network.ops.op import op_of

Json = dict[str, Any]


def _node(name: str, op: str, inputs: list[Any], /, **rest: Any) -> Json:
    """A node; keyword arguments are attributes but for variant, params, source, out_shape."""
    node: Json = {"name": name, "op": op, "inputs": inputs}
    for key in ("variant", "params", "source", "out_shape"):
        if key in rest:
            node[key] = rest.pop(key)
    return {**node, "attrs": rest}


def _weights(name: str, bias: bool = True) -> dict[str, str]:
    params = {"weight": f"{name}.weight"}
    return {**params, "bias": f"{name}.bias"} if bias else params


def _network(inputs: list[Json], nodes: list[Json], outputs: list[Any]) -> Json:
    return {"dlv_network": 1, "inputs": inputs, "nodes": nodes, "outputs": outputs}


def _lenet() -> Json:
    image = {"name": "x", "shape": ["B", 1, 28, 28]}
    return _network(
        [image],
        [
            _node("conv1", "CONV", ["x"], out=20, kernel=5, params=_weights("conv1")),
            _node("pool1", "POOL", ["conv1"], variant="MAX", kernel=2, stride=2),
            _node("conv2", "CONV", ["pool1"], out=50, kernel=[5, 5], params=_weights("conv2")),
            _node("pool2", "POOL", ["conv2"], variant="MAX", kernel=2, stride=2),
            _node("flatten", "RESHAPE", ["pool2"], kind="flatten"),
            _node("ip1", "FULL", ["flatten"], out=500, params=_weights("ip1")),
            _node("relu1", "RELU", ["ip1"]),
            _node("ip2", "FULL", ["relu1"], out=10, params=_weights("ip2")),
            _node("prob", "SOFTMAX", ["ip2"]),
        ],
        ["prob"],
    )


def _norm(name: str, inputs: list[Any]) -> Json:
    slots = ("weight", "bias", "running_mean", "running_var")
    return _node(
        name, "NORM", inputs, variant="BATCH", params={slot: f"{name}.{slot}" for slot in slots}
    )


def _resnet() -> Json:
    def conv(name: str, source: str, out: int, kernel: int, stride: int = 1) -> Json:
        return _node(
            name,
            "CONV",
            [source],
            out=out,
            kernel=[kernel, kernel],
            stride=stride,
            pad=kernel // 2,
            params=_weights(name, False),
        )

    return _network(
        [{"name": "x", "shape": ["B", 3, 32, 32]}],
        [
            conv("stem", "x", 16, 3),
            conv("a.conv1", "stem", 32, 3, 2),
            _norm("a.bn1", ["a.conv1"]),
            _node("a.relu1", "RELU", ["a.bn1"]),
            conv("a.conv2", "a.relu1", 32, 3),
            _norm("a.bn2", ["a.conv2"]),
            conv("a.down", "stem", 32, 1, 2),
            _node("a.add", "ADD", ["a.bn2", "a.down"]),
            _node("a.relu2", "RELU", ["a.add"]),
            _node("mean", "POOL", ["a.relu2"], variant="MEAN", axis=[-1, -2], keep=True),
            _node("flat", "RESHAPE", ["mean"], kind="flatten"),
            _node("fc", "FULL", ["flat"], out=10, params=_weights("fc")),
        ],
        ["fc"],
    )


def _unet() -> Json:
    def conv(name: str, source: str, out: int) -> Json:
        return _node(name, "CONV", [source], out=out, kernel=[3, 3], pad=1, params=_weights(name))

    return _network(
        [{"name": "x", "shape": ["B", 1, 64, 48]}],
        [
            conv("down1", "x", 8),
            _node("pool1", "POOL", ["down1"], variant="MAX", kernel=2, stride=2),
            conv("down2", "pool1", 16),
            _node("pool2", "POOL", ["down2"], variant="MAX", kernel=2, stride=2),
            conv("middle", "pool2", 32),
            _node("up2", "DECONV", ["middle"], out=16, kernel=2, stride=2, params=_weights("up2")),
            _node("cat2", "CONCAT", ["up2", "down2"]),
            conv("conv2", "cat2", 16),
            _node("up1", "DECONV", ["conv2"], out=8, kernel=2, stride=2, params=_weights("up1")),
            _node("cat1", "CONCAT", ["up1", "down1"]),
            _node("head", "CONV", ["cat1"], out=2, kernel=[1, 1], params=_weights("head")),
        ],
        ["head"],
    )


def _lstm() -> Json:
    slots = [
        f"{kind}_l{layer}"
        for layer in range(2)
        for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    ]
    return _network(
        [{"name": "tokens", "shape": ["B", 12], "dtype": "int64"}],
        [
            _node(
                "embed", "EMBED", ["tokens"], out=20, rows=100, params={"weight": "embed.weight"}
            ),
            _node("batch", "RESHAPE", ["embed"], kind="size", axis=0),
            _node("zeros", "RESHAPE", ["batch"], kind="fill", size=[2, "B", 32]),
            _node(
                "lstm",
                "RNN",
                ["embed", "zeros", "zeros"],
                variant="LSTM",
                hidden=32,
                layers=2,
                batch_first=True,
                params={slot: f"lstm.{slot}" for slot in slots},
            ),
            _node("out", "RESHAPE", ["lstm"], kind="getitem", index=0),
            _node("last", "RESHAPE", ["out"], kind="select", axis=1, index=-1),
            _node("fc", "FULL", ["last"], out=2, params=_weights("fc")),
        ],
        ["fc", "lstm:1"],
    )


def _transformer() -> Json:
    heads: list[Json] = []
    for place, name in enumerate("qkv"):
        heads += [
            _node(f"{name}.item", "RESHAPE", ["split"], kind="getitem", index=place),
            _node(f"{name}.view", "RESHAPE", [f"{name}.item"], kind="view", size=["B", -1, 4, 16]),
            _node(name, "RESHAPE", [f"{name}.view"], kind="transpose", axes=[1, 2]),
        ]
    return _network(
        [{"name": "tokens", "shape": ["B", 10], "dtype": "int64"}],
        [
            _node("wte", "EMBED", ["tokens"], out=64, rows=500, params={"weight": "wte.weight"}),
            _node("pos", "ADD", ["wte"], shape=[1, 10, 64], params={"value": "wpe"}),
            _node("ln1", "NORM", ["pos"], variant="LAYER", params=_weights("ln1")),
            _node("qkv", "FULL", ["ln1"], out=192, params=_weights("qkv")),
            _node("split", "RESHAPE", ["qkv"], kind="split", axis=2, sizes=[64, 64, 64]),
            *heads,
            _node("attention", "ATTENTION", ["q", "k", "v"], causal=True),
            _node("merge", "RESHAPE", ["attention"], kind="transpose", axes=[1, 2]),
            _node("join", "RESHAPE", ["merge"], kind="reshape", size=["B", -1, 64]),
            _node("proj", "FULL", ["join"], out=64, params=_weights("proj")),
            _node("add1", "ADD", ["pos", "proj"]),
            _node("ln2", "NORM", ["add1"], variant="LAYER", params=_weights("ln2")),
            _node("up", "FULL", ["ln2"], out=256, params=_weights("up")),
            _node("gelu", "ACT", ["up"], variant="GELU", approximate="tanh"),
            _node("down", "FULL", ["gelu"], out=64, params=_weights("down")),
            _node("add2", "ADD", ["add1", "down"]),
            _node("head", "FULL", ["add2"], out=500, params={"weight": "wte.weight"}),
        ],
        ["head"],
    )


_MAKERS = {
    "lenet": _lenet,
    "resnet": _resnet,
    "unet": _unet,
    "lstm": _lstm,
    "transformer": _transformer,
}
NAMES = sorted(_MAKERS)


@pytest.fixture(scope="session")
def plain() -> Callable[[str], Json]:
    """The plain JSON of a network, fresh at every call: to be changed at will."""
    return lambda name: _MAKERS[name]()


@pytest.fixture(scope="session")
def load() -> Callable[[str], Network]:
    """The network of that name."""

    def load_one(name: str) -> Network:
        network, warnings = read(_MAKERS[name]())
        assert warnings == []
        return network

    return load_one


@pytest.fixture(scope="session")
def node_of() -> Callable[..., Json]:
    """Makes the plain JSON of one node."""
    return _node


@pytest.fixture(scope="session")
def network_of() -> Callable[..., Json]:
    """Makes the plain JSON of a network."""
    return _network


@pytest.fixture(params=NAMES)
def named(request: pytest.FixtureRequest) -> str:
    """The name of each of the networks in turn."""
    name: str = request.param
    return name


_WORDS = st.text("ab:/é.", min_size=1, max_size=4)


@st.composite
def _random_network(draw: st.DrawFn) -> Json:
    """A valid network of up to 12 nodes on maps of four axes, names with colons in them."""
    names = draw(st.lists(_WORDS, min_size=2, max_size=13, unique=True))
    nodes: list[Json] = []
    dims = {names[0]: (4, 6, 6)}
    for name in names[1:]:
        source = draw(st.sampled_from(sorted(dims)))
        shape = dims[source]
        partner = draw(st.sampled_from([other for other in sorted(dims) if dims[other] == shape]))
        kind = draw(st.sampled_from(("conv", "norm", "relu", "act", "add", "flat", "pool", "op")))
        if kind == "conv":
            out, kernel = draw(st.integers(1, 5)), draw(st.sampled_from((1, 3)))
            bias = draw(st.booleans())
            params = _weights(name, bias)
            attrs = {"kernel": kernel, "pad": kernel // 2, "dilation": [1, 1]}
            nodes.append(_node(name, "CONV", [[source, 0]], out=out, params=params, **attrs))
            dims[name] = (out, *shape[1:])
        elif kind == "norm":
            eps = draw(st.floats(0, 1, allow_nan=False))
            nodes.append(_node(name, "NORM", [[source, 0]], variant="BATCH", eps=eps))
            dims[name] = shape
        elif kind == "pool" and shape[1] > 1:
            nodes.append(_node(name, "POOL", [[source, 0]], variant="MAX", kernel=[2, 2]))
            dims[name] = (shape[0], shape[1] - 1, shape[2] - 1)
        elif kind == "flat":
            nodes.append(_node(name, "RESHAPE", [[source, 0]], kind="view", size=["B", *shape]))
            dims[name] = shape
        elif kind == "add":
            nodes.append(_node(name, "ADD", [[source, 0], [partner, 0]]))
            dims[name] = shape
        elif kind == "op":
            source_form = {"dialect": "aten", "op": "roll", "args": [{"c": 1.5}], "kwargs": {}}
            nodes.append(
                _node(
                    name,
                    "OP",
                    [[source, 0]],
                    variant="raw",
                    source=source_form,
                    out_shape=["B", *shape],
                )
            )
            dims[name] = shape
        elif kind == "act":
            nodes.append(_node(name, "ACT", [[source, 0]], variant="TANH"))
            dims[name] = shape
        else:
            nodes.append(_node(name, "RELU", [[source, 0]], slope=draw(st.floats(0, 1))))
            dims[name] = shape
    image = {"name": names[0], "shape": ["B", 4, 6, 6]}
    outputs = draw(st.lists(st.sampled_from(names[1:]), min_size=1, max_size=3))
    return _network([image], nodes, [[name, 0] for name in outputs])


@pytest.fixture(scope="session")
def random_network() -> st.SearchStrategy[Json]:
    """Random valid networks as plain JSON."""
    return _random_network()


def _forward(
    network: Network, tensors: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[tuple[str, int], Any]:
    """Every value of a forward pass by torch's functions, from operations and attributes alone."""
    torch = pytest.importorskip("torch", reason="torch is the oracle here")
    functions = torch.nn.functional
    values: dict[tuple[str, int], Any] = {(name, 0): value for name, value in given.items()}
    held = {**tensors, **{a: tensors[b] for a, b in network.aliases.items() if b in tensors}}

    def conv(node: Node, x: Any, params: dict[str, Any]) -> Any:
        attrs = node.attrs
        last, first = attrs["channels"] == "last", attrs["layout"] == "kernel_first"
        axes = len(attrs["kernel"])
        x = x.movedim(-1, 1) if last else x
        weight = params["weight"]
        weight = weight.permute(axes + 1, axes, *range(axes)) if first else weight
        pads = [each for pair in reversed(attrs["pad"]) for each in pair]
        call = {1: functions.conv1d, 2: functions.conv2d, 3: functions.conv3d}[axes]
        result = call(
            functions.pad(x, pads), weight, params.get("bias"), attrs["stride"], 0,
            attrs["dilation"], attrs["groups"],
        )  # fmt: skip
        return result.movedim(1, -1) if last else result

    def pool(node: Node, x: Any) -> Any:
        attrs = node.attrs
        if node.variant == "MEAN":
            return x.mean(dim=attrs["axis"], keepdim=attrs["keep"])
        x = x.movedim(-1, 1) if attrs["channels"] == "last" else x
        if attrs["size"] is not None:
            result = functions.adaptive_avg_pool2d(x, attrs["size"])
        elif node.variant == "MAX":
            pads = [before for before, _ in attrs["pad"]]
            result = functions.max_pool2d(
                x, attrs["kernel"], attrs["stride"], pads, attrs["dilation"], attrs["ceil"]
            )
        else:
            pads = [before for before, _ in attrs["pad"]]
            result = functions.avg_pool2d(
                x, attrs["kernel"], attrs["stride"], pads, attrs["ceil"], attrs["count_pad"]
            )
        return result.movedim(1, -1) if attrs["channels"] == "last" else result

    def norm(node: Node, x: Any, params: dict[str, Any]) -> Any:
        axis, eps = node.attrs["axis"], node.attrs["eps"]
        weight, bias = params.get("weight"), params.get("bias")
        if node.variant == "LAYER":
            return functions.layer_norm(x, x.shape[axis:], weight, bias, eps)
        moved = x.movedim(axis, 1)
        shape = [1, -1, *[1] * (moved.dim() - 2)]
        mean, var = params.get("running_mean"), params.get("running_var")
        mean = moved.mean() if mean is None else mean.reshape(shape)
        var = moved.var() if var is None else var.reshape(shape)
        moved = (moved - mean) / (var + eps).sqrt()
        if weight is not None and bias is not None:
            moved = moved * weight.reshape(shape) + bias.reshape(shape)
        return moved.movedim(1, axis)

    def reshape(node: Node, x: list[Any]) -> Any:
        attrs, kind = node.attrs, node.attrs["kind"]
        if kind == "size":
            return x[0].shape[attrs["axis"]]
        if kind == "fill":
            sizes = [n if isinstance(n, int) else x[0] for n in attrs["size"]]
            return torch.full(sizes, attrs["const"])
        if kind == "flatten":
            return x[0].flatten(attrs["start"], attrs["end"])
        if kind in ("view", "reshape"):
            batch = x[0].shape[0]
            return x[0].reshape([batch if isinstance(n, str) else n for n in attrs["size"]])
        if kind == "transpose":
            return x[0].transpose(*attrs["axes"])
        if kind == "permute":
            return x[0].permute(*attrs["axes"])
        if kind == "split":
            return x[0].split(attrs["sizes"], attrs["axis"])
        if kind == "getitem":
            return x[0]
        assert kind == "select", kind
        return x[0].select(attrs["axis"], attrs["index"])

    def result_of(node: Node, x: list[Any], params: dict[str, Any]) -> Any:
        attrs = node.attrs
        simple: dict[str, Any] = {
            "RELU": lambda: functions.leaky_relu(x[0], attrs["slope"]),
            "SOFTMAX": lambda: functions.softmax(x[0], attrs["axis"]),
            "DROPOUT": lambda: x[0],
            "CONCAT": lambda: torch.cat(x, attrs["axis"]),
            "FULL": lambda: functions.linear(
                x[0],
                params["weight"] if attrs["layout"] == "out_in" else params["weight"].T,
                params.get("bias"),
            ),
            "EMBED": lambda: functions.embedding(x[0], params["weight"]),
            "OP": lambda: x[0].roll(1, -1),
            "CONV": lambda: conv(node, x[0], params),
            "POOL": lambda: pool(node, x[0]),
            "NORM": lambda: norm(node, x[0], params),
            "RESHAPE": lambda: reshape(node, x),
        }
        if node.op in simple:
            return simple[node.op]()
        if node.op == "ACT":
            calls = {"TANH": torch.tanh, "SIGMOID": torch.sigmoid, "SILU": functions.silu}
            if node.variant == "GELU":
                return functions.gelu(x[0], approximate=attrs["approximate"])
            return calls[node.variant or ""](x[0])
        if node.op == "ATTENTION":
            return functions.scaled_dot_product_attention(
                *x[:3], is_causal=attrs["causal"], scale=attrs["scale"]
            )
        assert node.op in ("ADD", "MUL"), node.op
        sides = [*x, params["value"]] if "value" in params else x
        total = sides[0]
        for side in sides[1:]:
            total = total + side if node.op == "ADD" else total * side
        return total

    for node in network.topological():
        getitem = node.attrs.get("kind") == "getitem"
        x = [values[p, node.attrs["index"] if getitem else port] for p, port in node.inputs]
        params = {slot: held[name] for slot, name in node.params.items()}
        found = result_of(node, x, params)
        for port, value in enumerate(found if isinstance(found, tuple) else (found,)):
            values[node.name, port] = value
    return values


@pytest.fixture(scope="session")
def forward() -> Callable[..., dict[tuple[str, int], Any]]:
    """forward(network, tensors, inputs): the value at every port, computed by torch."""
    return _forward


def _random_tensors(network: Network, seed: int = 0) -> dict[str, Any]:
    torch = pytest.importorskip("torch", reason="torch is the oracle here")
    torch.set_num_threads(1)
    source = torch.Generator().manual_seed(seed)
    shapes = node_shapes(network)
    found: dict[str, Any] = {}
    for node in network.nodes:
        wanted = op_of(node).parameter_shapes(node, input_shapes(node, shapes))
        for slot, name in node.params.items():
            made = torch.randn(wanted[slot], generator=source) * 0.1
            found[name] = made.abs() + 0.5 if slot == "running_var" else made
    return found


@pytest.fixture(scope="session")
def random_tensors() -> Callable[..., dict[str, Any]]:
    """random_tensors(network, seed=0): a tensor for every parameter, by name."""
    return _random_tensors


def _random_inputs(network: Network, batch: int = 2) -> dict[str, Any]:
    torch = pytest.importorskip("torch", reason="torch is the oracle here")
    source = torch.Generator().manual_seed(7)
    found: dict[str, Any] = {}
    for item in network.inputs:
        shape = [dim if isinstance(dim, int) else batch for dim in item.shape]
        if "int" in item.dtype:
            found[item.name] = torch.randint(0, 50, shape, generator=source)
        else:
            found[item.name] = torch.randn(shape, generator=source)
    return found


@pytest.fixture(scope="session")
def random_inputs() -> Callable[..., dict[str, Any]]:
    """random_inputs(network, batch=2): a value for every input of a network."""
    return _random_inputs
