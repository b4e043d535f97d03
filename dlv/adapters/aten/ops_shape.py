"""Which operation of the vocabulary an aten operation is: pools, joins, and plumbing."""

from __future__ import annotations

from dlv.adapters.aten.call import Match, Reading, Unmatched
from dlv.adapters.aten.ops import LAYERS, Rule
from dlv.adapters.aten.record import Ref, Tagged

_ARITHMETIC = ("operator.", "math.", "torch.sym_")


def _pool(variant: str, axes: int) -> Rule:
    def rule(call: Reading) -> Match:
        x = call.data("self")
        call.rank(x, axes + 2)
        kernel = call.per_axis("kernel_size", axes, 0)
        attrs = {
            "kernel": kernel,
            "stride": call.per_axis("stride", axes, 0) if call.get("stride") else kernel,
            "pad": list(call.per_axis("padding", axes, 0)),
            "dilation": call.per_axis("dilation", axes, 1),
            "ceil": call.flag("ceil_mode"),
        }
        if variant == "AVG":
            if call.get("divisor_override") is not None:
                raise Unmatched
            attrs["count_pad"] = call.flag("count_include_pad", True)
        return Match("POOL", attrs, (x,), variant=variant)

    return rule


def _adaptive(variant: str, axes: int) -> Rule:
    def rule(call: Reading) -> Match:
        x = call.data("self")
        call.rank(x, axes + 2)
        return Match("POOL", {"size": call.per_axis("output_size", axes, 0)}, (x,), variant=variant)

    return rule


def _mean(call: Reading) -> Match:
    x = call.data("self")
    call.same_dtype(x, call.get("dtype"))
    given = call.get("dim")
    axis = call.ints("dim") if given is not None and given != [] else None
    return Match("POOL", {"axis": axis, "keep": call.flag("keepdim")}, (x,), variant="MEAN")


def _concat(call: Reading) -> Match:
    parts = call.get("tensors")
    if not isinstance(parts, list) or not parts:
        raise Unmatched
    for part in parts:
        if not isinstance(part, Ref) or part.name in call.state:
            raise Unmatched
    return Match("CONCAT", {"axis": call.whole("dim", 0)}, tuple(parts))


def _reshape(call: Reading, inputs: tuple[Ref, ...] = (), **attrs: object) -> Match:
    return Match("RESHAPE", attrs, (call.data("self"), *inputs))


def _flatten(call: Reading) -> Match:
    start, end = call.whole("start_dim", 0), call.whole("end_dim", -1)
    return _reshape(call, kind="flatten", start=start, end=end)


def _view(kind: str) -> Rule:
    def rule(call: Reading) -> Match:
        size, refs = call.lengths("shape" if call.get("shape") is not None else "size")
        return _reshape(call, refs, kind=kind, size=size)

    return rule


def _unflatten(call: Reading) -> Match:
    call.ints("sizes")
    shape = call.out().shape
    unknown = [place for place, dim in enumerate(shape) if not isinstance(dim, int)]
    if len(unknown) > 1:
        raise Unmatched
    size = [-1 if place in unknown else dim for place, dim in enumerate(shape)]
    return _reshape(call, kind="reshape", size=size)


def _transpose(call: Reading) -> Match:
    return _reshape(call, kind="transpose", axes=[call.whole("dim0"), call.whole("dim1")])


def _t(call: Reading) -> Match:
    call.rank(call.data("self"), 2)
    return _reshape(call, kind="transpose", axes=[0, 1])


def _permute(call: Reading) -> Match:
    return _reshape(call, kind="permute", axes=call.ints("dims"))


def _squeeze(call: Reading) -> Match:
    axis = call.ints("dim") if call.get("dim") is not None else None
    return _reshape(call, kind="squeeze", axis=axis)


def _unsqueeze(call: Reading) -> Match:
    return _reshape(call, kind="unsqueeze", axis=call.whole("dim"))


def _select(call: Reading) -> Match:
    return _reshape(call, kind="select", axis=call.whole("dim"), index=call.whole("index"))


def _slice(call: Reading) -> Match:
    start = None if call.get("start") is None else call.whole("start")
    end = None if call.get("end") is None else call.whole("end")
    step = call.whole("step", 1)
    return _reshape(call, kind="slice", axis=call.whole("dim", 0), start=start, end=end, step=step)


def _narrow(call: Reading) -> Match:
    start, axis = call.whole("start"), call.whole("dim")
    end: int | None = start + call.whole("length")
    if start < 0 and end is not None and end >= 0:
        end = None
    return _reshape(call, kind="slice", axis=axis, start=start, end=end, step=1)


def _expand(call: Reading) -> Match:
    size, refs = call.lengths("size")
    return _reshape(call, refs, kind="expand", size=size)


def _split(call: Reading) -> Match:
    """Into pieces whose lengths the recorded outputs tell."""
    x, axis = call.data("self"), call.whole("dim", 0)
    rank = len(call.shape(x))
    if not -rank <= axis < rank:
        raise Unmatched
    shapes = [call.out(port).shape for port in range(len(call.call.outputs))]
    if any(len(shape) != rank for shape in shapes):
        raise Unmatched
    sizes = [shape[axis] for shape in shapes]
    if not sizes or not all(isinstance(size, int) for size in sizes):
        raise Unmatched
    return _reshape(call, kind="split", axis=axis, sizes=sizes)


def _contiguous(call: Reading) -> Match:
    if call.get("memory_format") is not None:
        raise Unmatched
    return _reshape(call, kind="contiguous")


def _to(call: Reading) -> Match:
    x = call.data("self")
    for name, usual in (("memory_format", "preserve_format"), ("layout", "strided")):
        if call.get(name) is not None and call.get(name) != Tagged(name, usual):
            raise Unmatched
    dtype = call.out().dtype
    return _reshape(call, kind="to", dtype=None if dtype == call.value(x).dtype else dtype)


def _fill(const: float | None) -> Rule:
    def rule(call: Reading) -> Match:
        number = call.number("fill_value") if const is None else const
        # Attributes tell no dtype: what is not of the usual one stays as it is.
        if call.out().dtype != "float32":
            raise Unmatched
        size, refs = call.lengths("size")
        return Match("RESHAPE", {"kind": "fill", "size": size, "const": number}, refs)

    return rule


def _size(call: Reading) -> Match:
    return _reshape(call, kind="size", axis=call.whole("dim"))


def _arithmetic(call: Reading) -> Match:
    if call.out().dtype is not None:
        raise Unmatched
    refs = tuple(call.call.refs())
    if any(call.value(ref).dtype is not None for ref in refs):
        raise Unmatched
    word = call.call.op.rpartition(".")[2].removeprefix("sym_")
    return Match("RESHAPE", {"kind": "arithmetic", "operator": word}, refs)


_SHAPES: dict[str, Rule] = {
    **{f"aten.max_pool{n}d.default": _pool("MAX", n) for n in (1, 2, 3)},
    **{f"aten.max_pool{n}d_with_indices.default": _pool("MAX", n) for n in (1, 2, 3)},
    **{f"aten.avg_pool{n}d.default": _pool("AVG", n) for n in (1, 2, 3)},
    **{f"aten.adaptive_avg_pool{n}d.default": _adaptive("AVG", n) for n in (1, 2, 3)},
    **{f"aten._adaptive_avg_pool{n}d.default": _adaptive("AVG", n) for n in (2, 3)},
    **{f"aten.adaptive_max_pool{n}d.default": _adaptive("MAX", n) for n in (1, 2, 3)},
    "aten.mean.dim": _mean,
    "aten.mean.default": _mean,
    "aten.cat.default": _concat,
    "aten.flatten.using_ints": _flatten,
    "aten.view.default": _view("view"),
    "aten._unsafe_view.default": _view("view"),
    "aten.reshape.default": _view("reshape"),
    "aten.unflatten.int": _unflatten,
    "aten.transpose.int": _transpose,
    "aten.t.default": _t,
    "aten.permute.default": _permute,
    "aten.squeeze.default": _squeeze,
    "aten.squeeze.dim": _squeeze,
    "aten.squeeze.dims": _squeeze,
    "aten.unsqueeze.default": _unsqueeze,
    "aten.select.int": _select,
    "aten.slice.Tensor": _slice,
    "aten.narrow.default": _narrow,
    "aten.expand.default": _expand,
    "aten.split.Tensor": _split,
    "aten.split.sizes": _split,
    "aten.split_with_sizes.default": _split,
    "aten.chunk.default": _split,
    "aten.contiguous.default": _contiguous,
    "aten.to.dtype": _to,
    "aten.to.dtype_layout": _to,
    "aten.to.device": _to,
    "aten._to_copy.default": _to,
    "aten.zeros.default": _fill(0.0),
    "aten.ones.default": _fill(1.0),
    "aten.full.default": _fill(None),
    "aten.sym_size.int": _size,
}
_RULES = LAYERS | _SHAPES


def match(call: Reading, op: str) -> Match:
    """What the call is, read as `op`: its own, or that of which it is the in-place form."""
    rule = _RULES.get(op)
    if rule is None and op.startswith(_ARITHMETIC):
        rule = _arithmetic
    if rule is None:
        raise Unmatched
    return rule(call)
