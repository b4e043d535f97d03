"""Recorded calls: run exactly, gated by the module's mode; other code is never reached."""

from __future__ import annotations

import builtins
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlv.adapters.aten import ops
from dlv.adapters.onnx.raw import RULES
from dlv.errors import DlvError, UnsafeInput, UsageError
from dlv.network.graph import Input, Network, Node
from dlv.network.torch.module import NAMES

torch: Any = pytest.importorskip("torch", reason="torch runs the networks: dlv[torch]")
torch_module: Any = pytest.importorskip("dlv.network.torch.module")
torch_source: Any = pytest.importorskip("dlv.network.torch.module")
functional = torch.nn.functional


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


N = {"n": 0}


def c(value: Any) -> dict[str, Any]:
    return {"c": value}


def listed(*items: Any) -> dict[str, Any]:
    return {"l": list(items)}


def module(
    op: str, *args: Any, params: dict[str, Any] | None = None, inputs: int = 1, **kwargs: Any
) -> Any:
    """A module of one recorded call."""
    source = {"dialect": "aten", "op": op, "args": list(args), "kwargs": kwargs}
    given = tuple(Input(f"x{place}", ("B",)) for place in range(inputs))
    slots = {name: name for name in params or {}}
    node = Node("n", "OP", "raw", {}, tuple((item.name, 0) for item in given), slots, source)
    return torch_module.build(Network(given, (node,), (("n", 0),)), params or {}, {})


def test_arguments_of_every_kind() -> None:
    x = torch.randn(2, 3)
    weight = torch.randn(4, 3)
    assert torch.equal(
        module("aten.linear.default", N, {"p": "w"}, params={"w": weight})(x), x @ weight.T
    )
    assert torch.equal(
        module("aten.roll.default", N, listed(c(1)), listed(c(-1)))(x), x.roll(1, -1)
    )
    made = module("aten.to.dtype", N, {"dtype": "bfloat16"})
    assert made(x).dtype == torch.bfloat16
    kwargs: dict[str, Any] = {
        "dtype": {"dtype": "float64"},
        "device": {"device": "cuda:3"},
        "layout": {"layout": "strided"},
        "pin_memory": c(False),
    }
    zeros = module("aten.zeros.default", listed(c(2), c(1)), **kwargs)(x)
    assert (zeros.shape, zeros.dtype, zeros.device) == ((2, 1), torch.float64, x.device)
    there = module("aten.zeros.default", listed(c(2)), **kwargs)(x.to("meta"))
    assert there.device.type == "meta"
    low = module("aten.clamp.default", N, c("-Infinity"), c(0.5))(x)
    assert torch.equal(low, x.clamp(max=0.5))
    both = module("aten.cat.default", listed(N, {"n": 1}), c(1), inputs=2)
    assert torch.equal(both(x, x), torch.cat([x, x], 1))
    assert torch.equal(
        module("aten.gelu.default", N, approximate=c("tanh"))(x),
        functional.gelu(x, approximate="tanh"),
    )
    held = module("aten.index.Tensor", N, listed(c(None), {"n": 1}), inputs=2)
    assert torch.equal(held(x, torch.tensor([2, 0])), x[:, [2, 0]])
    image = torch.randn(1, 2, 3, 3)
    last = module("aten.contiguous.default", N, memory_format={"memory_format": "channels_last"})
    assert last(image).is_contiguous(memory_format=torch.channels_last)
    plain = module(
        "aten.clone.default", N, memory_format={"memory_format": "torch.contiguous_format"}
    )
    assert plain(image.movedim(1, -1)).is_contiguous()


def seeded(run: Any) -> Any:
    torch.manual_seed(7)
    return run()


def test_flags_follow_the_mode() -> None:
    x = torch.randn(40, 6)
    for recorded in (True, False):  # as exported; the mode counts
        made = module("aten.dropout.default", N, c(0.5), c(recorded))
        assert torch.equal(made.eval()(x), x)
        wanted = seeded(lambda: functional.dropout(x, 0.5, True))
        assert torch.equal(seeded(lambda m=made: m.train()(x)), wanted)
        made = module("aten.feature_dropout.default", N, c(0.5), train=c(recorded))
        assert torch.equal(made.eval()(x), x)
    q = torch.randn(2, 2, 3, 4)
    made = module("aten.scaled_dot_product_attention.default", N, N, N, c(None), c(0.5), c(True))
    options = {"dropout_p": 0.5, "is_causal": True}
    attend = functional.scaled_dot_product_attention
    wanted = seeded(lambda: attend(q, q, q, **options))
    assert torch.equal(seeded(lambda: made.train()(q)), wanted)
    assert torch.equal(made.eval()(q), attend(q, q, q, is_causal=True))


@pytest.mark.parametrize("kind", ["batch_norm", "instance_norm"])
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("recorded", [True, False])
def test_statistics_follow_the_mode(kind: str, kept: bool, recorded: bool) -> None:
    theirs = (torch.nn.BatchNorm1d if kind == "batch_norm" else torch.nn.InstanceNorm1d)(
        3, affine=True, track_running_stats=kept
    )
    state = {k: v.clone() for k, v in theirs.state_dict().items() if k != "num_batches_tracked"}
    slots = [{"p": name} if name in state else c(None) for name in ("running_mean", "running_var")]
    args = [N, {"p": "weight"}, {"p": "bias"}, *slots, c(recorded), c(0.1), c(1e-5), c(True)]
    made = module(f"aten.{kind}.default", *args, params=state)
    for train in (True, False):
        x = torch.randn(4, 3, 5)
        assert torch.equal(made.train(train)(x), theirs.train(train)(x))
    for name in state:
        assert torch.equal(made.state_dict()[name], theirs.state_dict()[name])


HOSTILE = [
    "os.system",
    "posix.system",
    "builtins.eval",
    "builtins.exec",
    "builtins.__import__",
    "builtins.getattr",
    "operator.attrgetter",
    "operator.methodcaller",
    "operator.itemgetter",
    "operator.call",
    "operator.getitem",
    "operator.setitem",
    "_operator.call",
    "subprocess.run",
    "torch.load",
    "torch.hub.load",
    "torch.ops.load_library",
    "torch.ops.aten.__class__",
    "torch.ops.aten.add.Tensor",
    "torch.sym_max.__globals__",
    "aten.__class__.default",
    "aten.__class__.__init__",
    "aten.__dict__.keys",
    "aten._dir.append",
    "aten.add.__class__",
    "aten.add.__call__",
    "aten.add.overloads",
    "aten.add._schemas",
    "aten.add.Tensor.__globals__",
    "aten.add",
    "aten..default",
    "aten.name.default",
    "aten.from_file.default",
    "aten.from_file.out",
    "aten.save.default",
    "aten.warn.default",
    "aten.manual_seed.default",
    "aten.set_grad_enabled.default",
    "aten.backward.default",
    "aten.set_data.default",
    "aten.format.default",
    "aten.percentFormat.default",
    "aten.list.t",
    "aten.__getitem__.Dict_str",
    "aten.set_.source_Storage",
    "aten.set_.source_Tensor_storage_offset",
    "aten.record_stream.default",
    "aten.quantized_lstm.input",
    "aten.fbgemm_linear_int8_weight.default",
    "aten._cuda_getDeviceCount.default",
    "aten._print.default",
    "aten._foreach_add.Scalar",
    "aten._nested_view_from_buffer.default",
    "aten._resize_output_.default",
    "aten.resize_.default",
    # What writes where the numbers that it is given say.
    "aten.sparse_coo_tensor.indices_size",
    "aten.sparse_csr_tensor.crow_col_value_size",
    "aten.to_dense.default",
    "aten.segment_reduce.default",
    "aten.ctc_loss.IntList",
    "aten.grid_sampler_2d.default",
    "aten.native_batch_norm.default",
    "aten.empty_strided.default",
    "aten.convolution_backward.default",
    "aten.add.Tensor\n",
    "aten.ａdd.Tensor",
    "prims.add.default",
    "inductor.something.default",
    "profiler._record_function_enter.default",
    "",
    "eval",
    "__import__",
]


@pytest.mark.parametrize("op", HOSTILE)
def test_other_code_is_not_run(op: str, tmp_path: Path) -> None:
    target = tmp_path / "touched"
    with pytest.raises(UnsafeInput):
        module(op, c(f"touch {target}"), c("x"))
    # Nor from the attributes of a node that computes sizes, but for arithmetic.
    attrs = {"kind": "arithmetic", "operator": op}
    node = Node("n", "RESHAPE", None, attrs, (("x", 0),))
    with pytest.raises(UsageError):
        torch_module.build(Network((Input("x", ()),), (node,), (("n", 0),)), {}, {})
    assert not target.exists()


def test_nothing_is_imported_or_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_source.resolve.cache_clear()
    for name in HOSTILE[:20]:
        with monkeypatch.context() as patch:
            patch.setattr(os, "system", None)
            patch.setattr(builtins, "__import__", None)
            with pytest.raises(DlvError) as found:
                torch_source.resolve(name)
        assert found.value.exit_code == 9


def test_the_error_names_the_node() -> None:
    with pytest.raises(UnsafeInput, match=r"node 'n': `os\.system`") as found:
        module("os.system", c("true"))
    assert found.value.hint
    with pytest.raises(UnsafeInput, match="has no operation"):
        module("aten.nothing_of_the_kind.default", N)


DEEP: Any = N
for _ in range(20):
    DEEP = {"l": [DEEP]}


@pytest.mark.parametrize(
    "args",
    [
        [{"n": 1}],
        [{"n": -1}],
        [{"n": True}],
        [{"n": "x"}],
        [{"p": "weight"}],
        [{"p": 3}],
        [{"l": "ab"}],
        [{"c": {"a": 1}}],
        [{"c": [1]}],
        [{"dtype": 3}],
        [{"dtype": "nn"}],
        [{"dtype": "load"}],
        [{"call": "os.system"}],
        [{"n": 0, "c": 1}],
        [{}],
        ["x"],
        [0],
        [None],
        [DEEP],
        [N, N, N, N, N],
    ],
)
def test_arguments_that_are_none(args: list[Any]) -> None:
    with pytest.raises(UsageError, match=r"\(OP raw\): |has no dtype"):
        module("aten.add.Tensor", *args)


@pytest.mark.parametrize(
    "source",
    [
        {"dialect": "aten"},
        {"dialect": "aten", "op": 3},
        {"dialect": "aten", "op": "aten.add.Tensor", "args": {}},
        {"dialect": "aten", "op": "aten.add.Tensor", "kwargs": []},
        {"dialect": "aten", "op": "aten.add.Tensor", "args": [], "kwargs": {"nothing": N}},
    ],
)
def test_sources_that_are_no_calls(source: dict[str, Any]) -> None:
    node = Node("n", "OP", "raw", {}, (("x", 0),), {}, source)
    with pytest.raises(UsageError, match="layer 'n'"):
        torch_module.build(Network((Input("x", ()),), (node,), (("n", 0),)), {}, {})


def every_operation() -> Iterator[tuple[str, str, Any]]:
    """Name, operation and schema of all that torch has under aten."""
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::"):
            base = schema.name[6:]
            yield f"aten.{base}.{schema.overload_name or 'default'}", base, schema


def resolves(name: str) -> bool:
    try:
        torch_source.resolve(name)
    except UnsafeInput:
        return False
    return True


def test_what_is_not_on_the_list_is_not_run() -> None:
    refused = set()
    for name, base, _ in every_operation():
        if not resolves(name):
            refused.add(base)
        else:
            assert base in NAMES or base.removesuffix("_") in NAMES, name
    assert len(refused) > 500
    with pytest.raises(UnsafeInput, match=r"aten\._make_dep_token\.default") as found:
        torch_source.resolve("aten._make_dep_token.default")
    assert "known pure" in str(found.value.why)
    assert "write the layer without _make_dep_token" in str(found.value.hint)
    for name in ("add.out", "linalg_lu_solve.default", "fractional_max_pool2d.default"):
        assert not resolves(f"aten.{name}")


def test_each_name_of_the_list_is_one_of_torch() -> None:
    there = {base for name, base, _ in every_operation() if resolves(name)}
    # Some come and go with the version of torch.
    assert len(NAMES - there) <= 20, NAMES - there


def test_what_dlv_itself_reads_and_writes_is_on_the_list() -> None:
    imported = [name for name in ops.RULES if name.startswith("aten.")]
    assert len(imported) > 20
    assert [name for name in imported if not resolves(name)] == []
    exported = {rule.partition(".")[0] for rule in RULES} - {"to_dtype"}
    unknown = {
        base for base in exported if base not in NAMES and base.removesuffix("_") not in NAMES
    }
    # They believe the numbers that they are given.
    assert unknown == {"grid_sampler", "grid_sampler_2d", "grid_sampler_3d"}


def test_what_can_be_looked_up_takes_and_gives_tensors() -> None:
    """Of all that torch has under aten: no texts but options, no files, no handles."""
    for name, base, schema in every_operation():
        if not resolves(name):
            continue
        kinds = {w for a in schema.arguments for w in re.findall(r"\w+", str(a.type))}
        assert not kinds & {"Dict", "Storage", "Stream", "Future", "Any", "torch", "t", "RRef"}, (
            name
        )
        texts = {a.name for a in schema.arguments if "str" in str(a.type)}
        assert not texts & {"filename", "message", "self", "device_type", "name", "code"}, name
        written = [a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write]
        if base.endswith("_") and base not in NAMES:
            assert written == [schema.arguments[0].name], name
        else:
            assert set(written) <= {"running_mean", "running_var"}, name
        assert "save" not in name
        assert "file" not in name


def test_a_view_of_what_lies_otherwise() -> None:
    """On the device of the export it was a view; here the result of a kernel lies elsewhere."""
    x = torch.randn(2, 3, 4).transpose(1, 2)
    for op in ("aten.view.default", "aten._unsafe_view.default"):
        assert torch.equal(module(op, N, listed(c(2), c(12)))(x), x.reshape(2, 12))
