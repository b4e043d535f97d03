"""A network as an nn.Module: the state_dict that was stored, trainable, for any batch.

Nodes that were exported from torch run exactly as recorded, by their aten operation. A network may
come from anyone, so that only operations of a list are looked up, never other code: torch.ops.aten
has some that write files, change settings or read beyond a tensor's end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from dlv.canonical import float_of
from dlv.dataclass import dataclass
from dlv.errors import DlvError, NotFound, UnsafeInput, UsageError, nearest
from dlv.network.fields import NON_FINITE
from dlv.network.graph import Network, Node
from dlv.network.ops.op import op_of
from dlv.network.sizes import text
from dlv.network.torch.ops import COUNTER, one_dtype, run_of
from dlv.network.torch.ops_shapes import function_of
from dlv.network.torch.types import Call, Run, dtype_of, refuse, torch

# The operations of aten that a stored network may name: an operation is here, or it is not run.
# Each computes its results from tensors and numbers that it is given, and nothing else: none opens
# files, changes settings, hands out memory addresses, or believes positions and lengths that a
# tensor holds without looking at them (pivots of a factorisation, sparse indices, random samples
# of a fractional pooling). `add_` counts as known where `add` is.

# Not for users, but exporters write them.
_PRIVATE = """
    __and__ __lshift__ __or__ __rshift__ __xor__ _adaptive_avg_pool2d _adaptive_avg_pool3d
    _assert_async _assert_scalar _assert_tensor_metadata _batch_norm_no_update
    _batch_norm_with_update _cdist_forward _conj _convolution _embedding_bag
    _embedding_bag_forward_only _euclidean_dist _fft_c2c _fft_c2r _fft_r2c _fused_rms_norm
    _local_scalar_dense _log_softmax _native_batch_norm_legit _native_batch_norm_legit_functional
    _native_batch_norm_legit_no_training _neg_view _pdist_forward _prelu_kernel _reshape_alias
    _safe_softmax _scaled_dot_product_attention_math _scaled_dot_product_efficient_attention
    _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu _shape_as_tensor
    _softmax _stack _to_copy _trilinear _unique2 _unsafe_index _unsafe_view _upsample_bicubic2d_aa
    _upsample_bilinear2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_nearest_exact3d _weight_norm _weight_norm_interface
"""
_PUBLIC = """
    abs absolute acos acosh adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
    adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d add addbmm addcdiv addcmul addmm
    addmv addr adjoint affine_grid_generator alias alias_copy all allclose alpha_dropout amax amin
    aminmax angle any arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin
    argsort argwhere as_strided asin asinh atan atan2 atanh atleast_1d atleast_2d atleast_3d
    avg_pool1d avg_pool2d avg_pool3d baddbmm bartlett_window batch_norm bernoulli bilinear
    binary_cross_entropy binary_cross_entropy_with_logits bincount binomial bitwise_and
    bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor blackman_window
    block_diag bmm broadcast_tensors broadcast_to bucketize cartesian_prod cat cauchy cdist ceil
    celu chain_matmul chalf channel_shuffle cholesky cholesky_inverse cholesky_solve chunk clamp
    clamp_max clamp_min clip clone col2im column_stack combinations complex concat concatenate conj
    conj_physical constant_pad_nd contiguous conv1d conv2d conv3d conv_depthwise3d conv_tbc
    conv_transpose1d conv_transpose2d conv_transpose3d convolution copy copysign corrcoef cos cosh
    cosine_embedding_loss cosine_similarity count_nonzero cov cross cross_entropy_loss cummax cummin
    cumprod cumsum cumulative_trapezoid deg2rad det detach detach_copy diag diag_embed diagflat
    diagonal diagonal_copy diagonal_scatter diff digamma dim dist div divide dot dropout dsplit
    dstack einsum elu embedding embedding_bag empty empty_like empty_permuted eq equal erf erfc
    erfinv exp exp2 expand expand_as expand_copy expm1 exponential eye feature_alpha_dropout
    feature_dropout fft_fft fft_fft2 fft_fftfreq fft_fftn fft_fftshift fft_hfft fft_hfft2 fft_hfftn
    fft_ifft fft_ifft2 fft_ifftn fft_ifftshift fft_ihfft fft_ihfft2 fft_ihfftn fft_irfft fft_irfft2
    fft_irfftn fft_rfft fft_rfft2 fft_rfftfreq fft_rfftn fill fix flatten flip fliplr flipud
    float_power floor floor_divide fmax fmin fmod frac frexp frobenius_norm full full_like gather
    gcd ge gelu geometric ger glu glu_jvp gradient greater greater_equal group_norm gru gru_cell gt
    hamming_window hann_window hardshrink hardsigmoid hardswish hardtanh heaviside
    hinge_embedding_loss histc histogram histogramdd hsplit hstack huber_loss hypot i0 igamma
    igammac im2col imag index index_add index_copy index_fill index_put index_reduce index_select
    inner instance_norm inverse is_complex is_floating_point is_nonzero is_signed isclose isfinite
    isin isinf isnan isneginf isposinf isreal istft item kaiser_window kl_div kron kthvalue l1_loss
    layer_norm lcm ldexp le leaky_relu lerp less less_equal lgamma lift lift_fresh lift_fresh_copy
    linalg_cholesky linalg_cholesky_ex linalg_cond linalg_cross linalg_det linalg_diagonal
    linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh linalg_inv linalg_inv_ex linalg_lstsq
    linalg_lu linalg_lu_factor linalg_lu_factor_ex linalg_matmul linalg_matrix_exp
    linalg_matrix_norm linalg_matrix_power linalg_matrix_rank linalg_multi_dot linalg_norm
    linalg_pinv linalg_qr linalg_slogdet linalg_solve linalg_solve_ex linalg_solve_triangular
    linalg_svd linalg_svdvals linalg_tensorinv linalg_tensorsolve linalg_vander linalg_vecdot
    linalg_vector_norm linear linspace log log10 log1p log2 log_normal log_sigmoid
    log_sigmoid_forward log_softmax logaddexp logaddexp2 logcumsumexp logdet logical_and logical_not
    logical_or logical_xor logit logspace logsumexp lstm lstm_cell lt mH mT margin_ranking_loss
    masked_fill masked_scatter masked_select matmul matrix_H matrix_exp matrix_power max max_pool1d
    max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices
    max_unpool2d max_unpool3d maximum mean median meshgrid min minimum mish mm mode moveaxis movedim
    mse_loss msort mul multi_margin_loss multilabel_margin_loss multilabel_margin_loss_forward
    multinomial multiply mv mvlgamma nan_to_num nanmean nanmedian nanquantile nansum narrow
    narrow_copy native_channel_shuffle native_dropout native_group_norm native_layer_norm
    native_norm ne neg negative new_empty new_full new_ones new_zeros nextafter nll_loss nll_loss2d
    nll_loss2d_forward nll_loss_forward nll_loss_nd nonzero nonzero_static norm norm_except_dim
    normal normal_functional not_equal nuclear_norm numel numpy_T one_hot ones ones_like outer pad
    pad_sequence pairwise_distance pdist permute permute_copy pinverse pixel_shuffle pixel_unshuffle
    poisson poisson_nll_loss polar polygamma positive pow prelu prod put qr quantile rad2deg rand
    rand_like randint randint_like randn randn_like random randperm range ravel real reciprocal
    reflection_pad1d reflection_pad2d reflection_pad3d relu relu6 remainder renorm repeat
    repeat_interleave replication_pad1d replication_pad2d replication_pad3d reshape reshape_as
    resolve_conj resolve_neg rms_norm rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell roll rot90 round
    row_stack rrelu rrelu_with_noise_functional rsqrt rsub scalar_tensor
    scaled_dot_product_attention scatter scatter_add scatter_reduce searchsorted select select_copy
    select_scatter selu sgn sigmoid sign signbit silu sin sinc sinh size slice slice_copy
    slice_scatter slogdet smooth_l1_loss soft_margin_loss softmax softplus softshrink sort
    special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1
    special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
    special_chebyshev_polynomial_w special_digamma special_entr special_erf special_erfc
    special_erfcx special_erfinv special_exp2 special_expit special_expm1 special_gammainc
    special_gammaincc special_gammaln special_hermite_polynomial_h special_hermite_polynomial_he
    special_i0 special_i0e special_i1 special_i1e special_laguerre_polynomial_l
    special_legendre_polynomial_p special_log1p special_log_ndtr special_log_softmax special_logit
    special_logsumexp special_modified_bessel_i0 special_modified_bessel_i1
    special_modified_bessel_k0 special_modified_bessel_k1 special_multigammaln special_ndtr
    special_ndtri special_polygamma special_psi special_round special_scaled_modified_bessel_k0
    special_scaled_modified_bessel_k1 special_shifted_chebyshev_polynomial_t
    special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v
    special_shifted_chebyshev_polynomial_w special_sinc special_softmax special_spherical_bessel_j0
    special_xlog1py special_xlogy special_zeta split split_copy split_with_sizes
    split_with_sizes_copy sqrt square squeeze squeeze_copy stack std std_mean stft storage_offset
    stride sub subtract sum sum_to_size svd swapaxes swapdims sym_constrain_range
    sym_constrain_range_for_size sym_numel sym_size sym_storage_offset sym_stride t t_copy take
    take_along_dim tan tanh tensor_split tensordot threshold tile to topk trace transpose
    transpose_copy trapezoid trapz triangular_solve tril tril_indices triplet_margin_loss triu
    triu_indices true_divide trunc type_as unbind unbind_copy unflatten unfold unfold_copy uniform
    unique_consecutive unique_dim unique_dim_consecutive unsafe_chunk unsafe_split
    unsafe_split_with_sizes unsqueeze unsqueeze_copy upsample_bicubic2d upsample_bilinear2d
    upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d
    vander var var_mean vdot view view_as view_as_complex view_as_complex_copy view_as_real
    view_as_real_copy view_copy vsplit vstack where xlogy zero zeros zeros_like
"""
NAMES = frozenset((_PRIVATE + _PUBLIC).split())
# What of their arguments these change, as the layer that they stand for does.
STATISTICS = frozenset({"running_mean", "running_var"})
UPDATING = frozenset({"_native_batch_norm_legit", "_batch_norm_with_update"})


_NAME = re.compile(r"aten\.([A-Za-z0-9_]{1,80})\.([A-Za-z0-9_]{1,80})")
_MOST_DEPTH = 8
# The types of arguments and results that networks compute with; a text only where it is an option.
_TYPES = {
    *("Tensor", "Optional", "List", "int", "SymInt", "float", "SymFloat", "bool", "SymBool"),
    *("number", "Scalar", "complex", "Device", "Generator", "ScalarType", "Layout"),
    *("MemoryFormat",),
}
_RESULTS = _TYPES - {"Device", "Generator", "Optional", "Layout"}
_OPTIONS = {
    *("approximate", "equation", "mode", "rounding_mode", "indexing", "padding", "reduce"),
    *("norm", "interpolation", "side", "UPLO", "driver", "pad_mode", "padding_side", "ord", "p"),
    "assert_msg",
}
# No result, yet asked for by exported programs.
_CHECKS = ("_assert", "sym_constrain_range")
# Arguments that say whether the call trains: of the module, not of the moment of the export.
_GATES = ("training", "train", "use_input_stats")
_GATED_SHARE = "dropout_p"
_MEMORY_FORMATS = {
    "contiguous": "contiguous_format",
    "preserve": "preserve_format",
    "channels_last": "channels_last",
    "channels_last_3d": "channels_last_3d",
}


def source_run(node: Node) -> Run:
    """What runs a node from its `source`, which has the dialect aten."""
    source = node.source or {}
    name, args, kwargs = source.get("op"), source.get("args", []), source.get("kwargs", {})
    if not isinstance(name, str) or not isinstance(args, list) or not isinstance(kwargs, dict):
        raise refuse(node, "its source is not a call")
    try:
        function, names = resolve(name)
    except DlvError as error:
        error.message = f"node {node.name!r}: {error.message}"
        error.args = (error.message,)
        raise
    if names and (len(args) > len(names) or not kwargs.keys() <= set(names)):
        raise refuse(node, f"{name} has no such arguments")
    given = [_argument(node, item, 0) for item in args]
    keyed = {key: _argument(node, item, 0) for key, item in kwargs.items()}
    _set_gates(names, given, keyed)

    def run(call: Call) -> Any:
        return function(
            *[make(call) for make in given], **{key: make(call) for key, make in keyed.items()}
        )

    return run


@cache
def resolve(name: str) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """The function of that name and its arguments' names; UnsafeInput for any other code."""
    match = _NAME.fullmatch(name)
    if match is None:
        function = function_of(name)
        if function is None:
            raise _unsafe(name, "it is neither an operation of aten nor arithmetic on sizes")
        return function, ()
    base, overload = match.groups()
    packet = getattr(torch.ops.aten, base, None)
    if not isinstance(packet, type(torch.ops.aten.add)) or overload not in packet.overloads():
        raise UnsafeInput(
            f"torch {torch.__version__} has no operation `{name}`",
            hint="it may be one of another version of torch",
        )
    found = getattr(packet, overload)
    _check(name, base, found._schema)
    if found in _VIEWS:
        found = torch.ops.aten.reshape.default
    return found, tuple(argument.name for argument in found._schema.arguments)


def kept_slots(node: Node) -> set[str]:
    """Slots of tensors that the recorded call itself changes: they are not trained."""
    source = node.source or {}
    function, names = resolve(source["op"])
    given = dict(zip(names, source.get("args", []), strict=False)) | source.get("kwargs", {})
    schema = getattr(function, "_schema", None)  # arithmetic has none
    arguments = schema.arguments if schema else ()
    written = {a.name for a in arguments if a.alias_info and a.alias_info.is_write}
    written |= STATISTICS & set(names)
    return {given[name]["p"] for name in written & given.keys() if "p" in given[name]}


def _check(name: str, base: str, schema: Any) -> None:
    in_place = base not in NAMES and base.endswith("_") and base[:-1] in NAMES
    if base not in NAMES and not in_place:
        raise UnsafeInput(
            f"`{name[:80]}` is not run for a network",
            why="it is not a known pure operation",
            hint=f"write the layer without {base}, or build the module from its own code"
            " and load the exported weights into it",
            did_you_mean=[f"aten.{word}" for word in nearest(base, NAMES)],
        )
    written = {a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write}
    if in_place:
        written.discard(schema.arguments[0].name)
    elif base in UPDATING:
        written -= STATISTICS
    if written:
        raise _unsafe(name, f"it writes into its argument {min(written)!r}")
    for argument in schema.arguments:
        words = _words(argument.type)
        if "str" in words and argument.name in _OPTIONS:
            words.discard("str")
        optional = "Generator" not in words or "Optional" in words
        if not words <= _TYPES or not optional:
            raise _unsafe(name, f"its argument {argument.name!r} is {argument.type}")
    results = [result.type for result in schema.returns]
    if not all(_words(result) <= _RESULTS for result in results):
        raise _unsafe(name, "it gives no tensors")
    if not results and not base.startswith(_CHECKS):
        raise _unsafe(name, "it returns nothing")


def _words(kind: Any) -> set[str]:
    return set(re.findall(r"[A-Za-z_.]+", str(kind)))


def _unsafe(name: str, why: str) -> UnsafeInput:
    return UnsafeInput(
        f"`{name[:80]}` is not run for a network",
        why=why,
        hint="a stored network may name operations on tensors and numbers, no other code",
    )


# Whether a view can be had depends on how a kernel lays out its result: where it was exported,
# a copy may have been left out that another device, or another kernel, needs.
_VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)

Make = Callable[[Call], Any]


def _argument(node: Node, item: Any, depth: int) -> Make:
    """What makes one argument of the call out of what came in."""
    if not isinstance(item, dict) or len(item) != 1 or depth > _MOST_DEPTH:
        raise refuse(node, f"its source holds {str(item)[:60]}, which is not a valid argument")
    [(tag, value)] = item.items()
    if tag == "n" and type(value) is int and 0 <= value < len(node.inputs):
        return lambda call: call.inputs[value]
    if tag == "p" and isinstance(value, str) and value in node.params:
        return lambda call: call.params[value]
    if tag == "l" and isinstance(value, list):
        return _list([_argument(node, each, depth + 1) for each in value])
    if tag == "c" and (value is None or isinstance(value, int | float | str)):
        plain = float_of(value) if isinstance(value, str) and value in NON_FINITE else value
        return _constant(plain)
    if tag == "dtype" and isinstance(value, str):
        return _constant(dtype_of(value))
    if tag == "device":
        return lambda call: call.device
    if tag == "layout":
        return _constant(torch.strided)
    if tag == "memory_format":
        word = str(value).removeprefix("torch.").removesuffix("_format")
        known = _MEMORY_FORMATS.get(word)
        return _constant(None if known is None else getattr(torch, known))
    raise refuse(node, f"its source holds {str(item)[:60]}, which is not a valid argument")


def _constant(value: Any) -> Make:
    return lambda call: value  # noqa: ARG005


def _list(items: Sequence[Make]) -> Make:
    return lambda call: [make(call) for make in items]


def _set_gates(names: Sequence[str], positional: list[Make], keyed: dict[str, Make]) -> None:
    """Flags that were right at the moment of the export follow the module's mode."""
    places = {name: place for place, name in enumerate(names[: len(positional)])}

    def find(name: str) -> Make | None:
        return positional[places[name]] if name in places else keyed.get(name)

    def put(name: str, make: Make) -> None:
        if name in places:
            positional[places[name]] = make
        else:
            keyed[name] = make

    statistics = find("running_mean") if "running_mean" in names else None

    def trains(call: Call) -> bool:
        # Without kept statistics, those of the batch are the only ones.
        none = "running_mean" in names and (statistics is None or statistics(call) is None)
        return call.training or none

    for name in _GATES:
        if find(name) is not None:
            put(name, trains)
    share = find(_GATED_SHARE)
    if share is not None and _GATED_SHARE in names:
        put(_GATED_SHARE, lambda call: share(call) if call.training else 0.0)


DIALECT = "aten"
_STATISTICS = "running_mean"


@dataclass(frozen=True)
class Step:
    """One node. An input is (producer, port); port None: all that the producer gives."""

    node: Node
    run: Run
    inputs: tuple[tuple[str, int | None], ...]
    params: tuple[tuple[str, str], ...]  # slot, name of the tensor
    counter: str | None  # tensor that counts batches
    last: tuple[str, ...]  # values that nothing needs after this step


@dataclass(frozen=True)
class Plan:
    """All steps; `needed` are the network's inputs without which they cannot be run."""

    steps: tuple[Step, ...]
    needed: frozenset[str]


def exact(node: Node) -> bool:
    """Whether the node is run as it was exported."""
    known = node.source is not None and node.source.get("dialect") == DIALECT
    return known and not node.picks


def plan(network: Network, tensors: Iterable[str]) -> Plan:
    """What to run, in the stored order; UsageError for what cannot be, naming the node.

    Nodes that nothing needs are left out, but for exported ones: they may change a buffer,
    or draw random numbers.
    """
    order = [node for node in network.topological() if not op_of(node).placeholder]
    wanted = _wanted(network, order)
    order = [node for node in order if node.name in wanted]
    _check_producers(network, order)
    tensors = set(tensors)
    last = _last_uses(network, order)
    second = _second_outputs(network, order)
    steps = [_step(node, tensors, node.name in second, last[node.name]) for node in order]
    used = {name for node in order for name, _ in node.inputs} | {n for n, _ in network.outputs}
    return Plan(tuple(steps), frozenset(used & set(given_names(network))))


def given_names(network: Network) -> list[str]:
    """What the caller hands in: the inputs, then what stands for a part that was cut off."""
    names = [item.name for item in network.inputs]
    return names + [node.name for node in network.nodes if op_of(node).placeholder]


def _wanted(network: Network, order: Sequence[Node]) -> set[str]:
    wanted = {name for name, _ in network.outputs}
    for node in reversed(order):
        if node.name in wanted or exact(node):
            wanted.add(node.name)
            wanted.update(name for name, _ in node.inputs)
    return wanted


def _check_producers(network: Network, order: Sequence[Node]) -> None:
    known = {node.name for node in order} | set(given_names(network)) | set(network.constants)
    for node in order:
        for name, _ in node.inputs:
            if name not in known:
                raise UsageError(
                    f"node {node.name!r}: its input {name!r} is not produced by anything"
                )
    for name, _ in network.outputs:
        if name not in known:
            raise UsageError(f"the output {name!r} is not produced by anything")


def _last_uses(network: Network, order: Sequence[Node]) -> dict[str, tuple[str, ...]]:
    """For each node the values that it is the last to read."""
    seen = {name for name, _ in network.outputs}
    result: dict[str, tuple[str, ...]] = {}
    for node in reversed(order):
        names = dict.fromkeys(name for name, _ in node.inputs if name not in seen)
        seen.update(names)
        result[node.name] = tuple(names)
        if node.name not in seen:
            result[node.name] += (node.name,)
    return result


def _second_outputs(network: Network, order: Sequence[Node]) -> set[str]:
    """The nodes of which more is read than the first output."""
    found = {name for name, port in network.outputs if port}
    for node in order:
        found.update(name for name, port in node.inputs if port or node.picks)
    return found


def _step(node: Node, tensors: set[str], positions: bool, last: tuple[str, ...]) -> Step:
    run = source_run(node) if exact(node) else run_of(node, positions=positions)
    if op_of(node).recurrent:
        run = one_dtype(run)
    inputs = tuple((name, None if node.picks else port) for name, port in node.inputs)
    params = list(node.params.items())
    counter = None
    statistics = node.params.get(_STATISTICS)
    if op_of(node).batch_statistics(node) and statistics is not None:
        name = statistics.rpartition(".")[0]
        name = f"{name}.{COUNTER}" if name else COUNTER
        if name in tensors:
            counter = name
            params.append((COUNTER, name))
    return Step(node, run, inputs, tuple(params), counter, last)


Tensors = Mapping[str, Any]  # name -> torch.Tensor


def build(
    network: Network, tensors: Tensors, constants: Tensors, *, buffers: Collection[str] = ()
) -> NetworkModule:
    """The module of a network: `tensors` by name, in the order that its state_dict shall have.

    Tensors that no node uses are kept, too. `buffers`: names of tensors that are not trained,
    beside statistics and whole numbers, which never are.
    """
    missing = sorted(network.tensor_names() - tensors.keys())
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise NotFound(
            f"the network needs tensors that are not there: {', '.join(missing[:3])}{more}",
            did_you_mean=nearest(missing[0], tensors),
        )
    for name in network.constants:
        if name not in constants:
            raise NotFound(f"the network needs the constant {name!r}, which is not there")
    return NetworkModule(network, tensors, constants, buffers)


class Holder(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
    """A submodule that only holds tensors, whatever they are called."""

    def train(self, mode: bool = True) -> Holder:
        # Not by setattr, which takes the mode for the tensor where one is called `training`.
        self.__dict__["training"] = mode
        for child in self.children():
            child.train(mode)
        return self


class _Held:
    """Stands for a submodule that is never trained."""

    training = False


_HELD = _Held()


class NetworkModule(Holder):
    """Runs a network node by node. Its submodules hold tensors, under the names they had.

    It takes the network's inputs, by position or name, and gives its output, or a tuple of all.
    """

    def __init__(
        self, network: Network, tensors: Tensors, constants: Tensors, buffers: Collection[str]
    ) -> None:
        super().__init__()
        # Names that no submodule has: all of the network's own are to be found on the module.
        self._dlv_network = network
        self._dlv_constants: dict[str, str] = {}
        self._dlv_held: frozenset[str] = frozenset()
        made = plan(network, {*tensors, *network.aliases})
        self._register(tensors, {*buffers, *_buffers(network)})
        for name in network.constants:
            self._register_constant(name, constants[name])
        self._prepare(made)

    def _register(self, tensors: Tensors, buffers: Collection[str]) -> None:
        aliases = self._dlv_network.aliases
        made: dict[str, Any] = {}
        names = dict.fromkeys([*tensors, *aliases])
        for name in names:
            kept = aliases.get(name, name)
            if kept not in tensors:
                kept = name
            if kept not in tensors:
                continue
            if kept not in made:
                tensor = tensors[kept].detach()
                trained = kept not in buffers and name not in buffers and _trainable(tensor)
                made[kept] = torch.nn.Parameter(tensor) if trained else tensor
            holder, key = self._holder(name)
            trained = isinstance(made[kept], torch.nn.Parameter)
            (holder._parameters if trained else holder._buffers)[key] = made[kept]

    def _register_constant(self, name: str, tensor: Any) -> None:
        place = name
        holder, key = self._holder(place)
        while key in holder._buffers or key in holder._parameters:
            place += "_"
            holder, key = self._holder(place)
        holder._buffers[key] = tensor.detach()
        holder._non_persistent_buffers_set.add(key)
        self._dlv_constants[name] = place

    def _holder(self, name: str) -> tuple[Any, str]:
        """The submodule that holds the tensor of that name, made where it is not there yet.

        Written past the methods of nn.Module: names of other frameworks may hold what those
        refuse, and none of them may hide a method.
        """
        *path, key = name.split(".")
        holder: Any = self
        for word in path:
            if holder._modules.get(word) is None:
                holder._modules[word] = Holder()
            holder = holder._modules[word]
        return holder, key

    def _prepare(self, plan: Plan) -> None:
        self._dlv_needed = plan.needed
        self._dlv_steps = [
            (
                step,
                [(slot, *self._holder(name)) for slot, name in step.params],
                _HELD if step.node.name in self._dlv_held else self._gate(step),
            )
            for step in plan.steps
        ]

    def hold(self, names: Collection[str]) -> None:
        """Run these nodes as when the network is tested, in every mode: statistics stay."""
        self._dlv_held = frozenset(names)
        self._prepare(plan(self._dlv_network, self._known()))

    def _gate(self, step: Step) -> Any:
        """The submodule whose mode counts: the one that the node belongs to."""
        first = next(iter(step.node.params.values()), None)
        path = step.node.name.split(".") if first is None else first.split(".")[:-1]
        holder: Any = self
        for word in path:
            inner = holder._modules.get(word)
            if inner is None:
                break
            holder = inner
        return holder

    def __getstate__(self) -> dict[str, Any]:
        """Without what is worked out anew for a copy."""
        state: dict[str, Any] = dict(self.__dict__)
        del state["_dlv_steps"], state["_dlv_needed"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._prepare(plan(self._dlv_network, self._known()))

    def _known(self) -> set[str]:
        """The names of all tensors."""
        names = {name for name, _ in self.named_parameters(remove_duplicate=False)}
        return names | {name for name, _ in self.named_buffers(remove_duplicate=False)}

    def extra_repr(self) -> str:
        network = self._dlv_network
        return f"dlv network {network.id[:12]}, {len(network.nodes)} nodes"

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        network = self._dlv_network
        values = self._given(args, kwargs)
        sizes = {
            symbol: values[item.name].shape[place]
            for item in network.inputs
            if item.name in values and values[item.name].dim() == len(item.shape)
            for place, symbol in enumerate(item.shape)
            if isinstance(symbol, str)
        }
        self._check_shapes(values)
        device = next((value.device for value in values.values()), self._device())
        for name, place in self._dlv_constants.items():
            values[name] = _read(*self._holder(place))
        step = None
        try:
            for step, params, gate in self._dlv_steps:
                training = gate.training
                tensors = {slot: _read(holder, key) for slot, holder, key in params}
                if training and step.counter is not None:
                    # In place, as torch does it, so that a copy of the module has its own.
                    tensors[COUNTER].add_(1)
                inputs = [_value(values, name, port) for name, port in step.inputs]
                call = Call(inputs, tensors, training, sizes, device)
                values[step.node.name] = step.run(call)
                for name in step.last:
                    values.pop(name, None)
        except Exception as error:
            if step is not None:
                error.add_note(f"in the node {step.node.name!r} ({step.node.op})")
            raise
        outputs = tuple(_value(values, name, port) for name, port in network.outputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        names = given_names(self._dlv_network)
        if len(args) > len(names):
            raise UsageError(f"the network takes {len(names)} inputs, not {len(args)}")
        values = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names or name in values:
                what = "is given twice" if name in values else "is none of the network's"
                raise UsageError(f"the input {name!r} {what}", did_you_mean=nearest(name, names))
            values[name] = value
        for name in names:
            if values.get(name) is None:
                if name in self._dlv_needed:
                    raise UsageError(f"the network needs its input {name!r}")
                values.pop(name, None)
        return values

    def _check_shapes(self, values: Mapping[str, Any]) -> None:
        """What was imported may have the lengths of its inputs written in its nodes, too."""
        for item in self._dlv_network.inputs if self._dlv_network.origin else ():
            shape = tuple(values[item.name].shape) if item.name in values else item.shape
            lengths = zip(shape, item.shape, strict=False)
            fits = all(have == wanted for have, wanted in lengths if isinstance(wanted, int))
            if len(shape) != len(item.shape) or not fits:
                raise UsageError(
                    f"the input {item.name!r} has another shape than the network takes",
                    why=f"it is {text(shape)}, the network wants {text(item.shape)}",
                )

    def _device(self) -> Any:
        first = next(self.parameters(), None)
        return torch.device("cpu") if first is None else first.device


def _read(holder: Any, key: str) -> Any:
    """A tensor where it is now: it may have been replaced, or be worked out from others."""
    for place in (holder._parameters, holder._buffers):
        if place.get(key) is not None:
            return place[key]
    return getattr(holder, key)


def _value(values: Mapping[str, Any], name: str, port: int | None) -> Any:
    value = values[name]
    if port is None or not isinstance(value, tuple | list):
        return value
    return value[port]


def _trainable(tensor: Any) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex())


def _buffers(network: Network) -> set[str]:
    """Tensors that the vocabulary calls buffers and no node uses as anything else, and those that
    a node writes.
    """
    found: dict[str, bool] = {}
    written: set[str] = set()
    for node in network.nodes:
        buffers = _buffer_slots(node)
        for slot, name in node.params.items():
            kept = network.aliases.get(name, name)
            found[kept] = found.get(kept, True) and slot in buffers
            if slot in buffers and op_of(node).raw:
                written.add(kept)
    return written | {name for name, buffer in found.items() if buffer}


def _buffer_slots(node: Node) -> set[str]:
    if op_of(node).raw:
        return kept_slots(node) if exact(node) else set()
    return {slot.name for slot in op_of(node).node_slots(node) or () if slot.buffer}
