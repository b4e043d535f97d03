"""Which steps of a sequence count: Keras hands masks on beside the tensors, dlv as nodes.

A mask begins at an Embedding with `mask_zero`, goes through layers that hand it on, and changes
what some layers compute. Where it is not certain what Keras does, the mask is `UNKNOWN`, and a
layer that would use it stays raw: it is refused by its name, never run without its mask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlv.adapters.keras.config import Call, Layer, Ref
from dlv.network.graph import Port


@dataclass(frozen=True)
class Mask:
    """A mask: the steps of a tensor count where the value at `port` is not zero."""

    port: Port | None  # None: not known
    truth: bool = False  # what is there is true and false already


UNKNOWN = Mask(None)

# They hand on the mask of their input as it is.
PASSES = frozenset(
    (
        *("Activation", "ActivityRegularization", "AlphaDropout", "BatchNormalization", "Dense"),
        *("Dropout", "ELU", "GaussianDropout", "GaussianNoise", "GroupNormalization", "Identity"),
        *("LayerNormalization", "LeakyReLU", "PReLU", "ReLU", "Rescaling"),
        *("Softmax", "TimeDistributed", "UnitNormalization"),
        *(f"SpatialDropout{axes}D" for axes in (1, 2, 3)),
    )
)
# Behind them there is none, whatever came in.
DROPS = frozenset(
    (
        *("EinsumDense", "Flatten", "Permute", "RMSNormalization", "RepeatVector", "Reshape"),
        *(
            f"{kind}{axes}D"
            for axes in (1, 2, 3)
            for kind in (
                *("Conv", "DepthwiseConv", "SeparableConv", "MaxPooling", "AveragePooling"),
                *("GlobalMaxPooling", "GlobalAveragePooling", "ZeroPadding", "Cropping"),
                "UpSampling",
            )
        ),
        *(f"Conv{axes}DTranspose" for axes in (1, 2, 3)),
    )
)
_RECURRENT = frozenset(("LSTM", "GRU", "SimpleRNN", "Bidirectional"))
MERGES = frozenset(("Add", "Average", "Subtract", "Concatenate"))
# What they compute is another thing with a mask; GlobalAveragePooling1D is written out.
USES = frozenset(("Softmax", "Multiply", "Maximum", "Minimum"))
# In functional models Keras hands these their mask as an argument, too.
HANDED = frozenset(("BatchNormalization", "GlobalAveragePooling1D", "TimeDistributed"))
# They take a mask by that name, which says the same as one that comes with the tensor.
TAKES = frozenset((*_RECURRENT, "RNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"))


def ignored(kind: str) -> bool:
    """Whether a layer computes the same with a mask as without."""
    known = kind in PASSES or kind in DROPS or kind in MERGES
    return known and kind not in USES and kind not in ("GlobalAveragePooling1D", "TimeDistributed")


def handed(call: Call, ports: Sequence[Port]) -> Mask | None:
    """The mask that a layer is called with, of all the tensors of the call."""
    given = call.kwargs.get("mask")
    if given is None:
        return None
    return Mask(ports[call.refs.index(given)], True) if isinstance(given, Ref) else UNKNOWN


def explicit(call: Call) -> bool:
    """Whether a call names the masks of its tensors."""
    return any(
        isinstance(value, Ref) and key.endswith("mask") and key != "attention_mask"
        for key, value in call.kwargs.items()
    )


def behind(
    layer: Layer, call: Call, input_masks: Sequence[Mask | None], ports: Sequence[Port]
) -> Mask | None:
    """The mask that the layer's result has. `input_masks` are those of the tensors of its call."""
    kind, own = layer.kind, layer.config
    if not layer.known:
        return UNKNOWN
    if layer.function:
        return None
    if kind == "Embedding":
        return Mask(ports[0]) if own.get("mask_zero") and len(ports) == 1 else None
    if kind in ("Masking", "ReversibleEmbedding", "Lambda"):
        return UNKNOWN
    argument = handed(call, ports)
    if not any(input_masks) and argument is None:
        return None
    if kind in DROPS:
        return None
    first = argument or input_masks[0]
    if kind in _RECURRENT:
        inner: Mapping[str, object] = layer.inner["layer"].config if "layer" in layer.inner else own
        sequences = inner.get("return_sequences") is True
        whole = not inner.get("return_state") and own.get("merge_mode", "") is not None
        return first if sequences and whole else UNKNOWN
    if kind in PASSES:
        return first
    if kind in MERGES and argument is None and len(set(input_masks)) == 1:
        rank = {"axis": own.get("axis", -1)} if kind == "Concatenate" else {}
        return first if rank.get("axis", -1) == -1 else UNKNOWN
    return UNKNOWN
