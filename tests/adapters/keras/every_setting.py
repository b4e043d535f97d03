"""Layers of Keras with every setting at other values than usual, for the tests of its importer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Shape = tuple[int | None, ...]

# Settings of any layer that has them.
VALUES: dict[str, tuple[Any, ...]] = {
    "activation": ("relu", "leaky_relu", "hard_sigmoid", "softmax", "softsign", "gelu", "swish"),
    "alpha": (0.3, 2.0),
    "axis": (-1, 1, 2, [1], [-1], [1, 2], [2, 1]),
    "center": (False,),
    "cropping": (1, 0),
    "data_format": ("channels_first", "channels_last"),
    "depth_multiplier": (2,),
    "dilation_rate": (2,),
    "dtype": ("mixed_bfloat16",),
    "epsilon": (0.5,),
    "groups": (1, 2, 4, -1),
    "interpolation": ("bilinear", "bicubic"),
    "keepdims": (True,),
    "lora_rank": (2,),
    "mask_zero": (True,),
    "max_value": (6.0, 1.0, 6),
    "momentum": (0.5,),
    "negative_slope": (0.5,),
    "noise_shape": ((None, 1, 1),),
    "offset": (1.0, [0.5, 1.0]),
    "output_padding": (1, 0),
    "padding": ("same", "valid", "causal"),
    "rate": (0.1,),
    "renorm": (True,),
    "scale": (False,),
    "seed": (3,),
    "size": (3,),
    "strides": (2, 3),
    "synchronized": (True,),
    "threshold": (0.5,),
    "trainable": (False,),
    "use_bias": (False,),
}
# What a layer needs, and values of its own for settings of that name.
PLAIN: dict[str, dict[str, Any]] = {
    **{f"Conv{axes}D": {"filters": 4, "kernel_size": 2} for axes in (1, 2, 3)},
    **{f"Conv{axes}DTranspose": {"filters": 4, "kernel_size": 3} for axes in (1, 2, 3)},
    **{f"DepthwiseConv{axes}D": {"kernel_size": 3, "depth_multiplier": 1} for axes in (1, 2)},
    **{
        f"SeparableConv{axes}D": {"filters": 4, "kernel_size": 3, "depth_multiplier": 1}
        for axes in (1, 2)
    },
    **{
        f"{kind}Pooling{axes}D": {"pool_size": 2}
        for kind in ("Max", "Average")
        for axes in (1, 2, 3)
    },
    **{f"Global{kind}Pooling{axes}D": {} for kind in ("Max", "Average") for axes in (1, 2, 3)},
    **{
        f"{kind}{axes}D": {}
        for kind in ("ZeroPadding", "Cropping", "UpSampling")
        for axes in (1, 2, 3)
    },
    "Dense": {"units": 3},
    "EinsumDense": {"equation": "abc,cd->abd", "output_shape": (None, 3)},
    "Embedding": {"input_dim": 7, "output_dim": 3},
    "BatchNormalization": {},
    "LayerNormalization": {},
    "RMSNormalization": {},
    "GroupNormalization": {"groups": 2},
    "Activation": {"activation": "relu"},
    "ReLU": {},
    "LeakyReLU": {},
    "ELU": {},
    "Softmax": {},
    "Dropout": {"rate": 0.5},
    "Rescaling": {"scale": 0.5},
    "Identity": {},
    "ActivityRegularization": {},
    "Flatten": {},
    "Reshape": {"target_shape": (4, -1)},
    "Permute": {"dims": (2, 1)},
    "RepeatVector": {"n": 3},
    "Add": {},
    "Average": {},
    "Concatenate": {},
    "Maximum": {},
    "Minimum": {},
    "Multiply": {},
    "Subtract": {},
}
OWN: dict[tuple[str, str], tuple[Any, ...]] = {
    ("Dense", "dtype"): ("float64", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16"),
    **{(f"ZeroPadding{axes}D", "padding"): (1, 0, 2) for axes in (1, 2, 3)},
    ("ZeroPadding1D", "padding"): ((1, 2),),
    ("ZeroPadding2D", "padding"): (((1, 0), (2, 3)), (1, 2)),
    ("Rescaling", "scale"): (2.0, [1.0, 2.0, 0.5, 3.0]),
    ("Rescaling", "offset"): (1.0, [1.0, 2.0, 0.5, 3.0]),
    ("Permute", "dims"): ((1, 2),),
    ("Reshape", "target_shape"): ((-1,), (2, 2, -1)),
    ("EinsumDense", "equation"): ("abc,bcd->abd", "abc,dc->abd"),
    ("EinsumDense", "bias_axes"): ("d", "b", "bd"),
    ("Softmax", "axis"): (1, [1], [1, 2], -2),
    ("Concatenate", "axis"): (1, 2, -2),
    ("UpSampling2D", "size"): ((3, 1),),
}
MERGES = ("Add", "Average", "Concatenate", "Maximum", "Minimum", "Multiply", "Subtract")


def shapes_of(kind: str, settings: dict[str, Any]) -> list[Shape]:
    if kind == "Embedding":
        return [(5,)]
    if kind == "RepeatVector":
        return [(4,)]
    if kind in MERGES:
        return [(6, 4), (6, 4)]
    axes = next((n for n in (1, 2, 3) if f"{n}D" in kind), 1)
    sides: Shape = (8, 7, 6)[:axes]
    first = settings.get("data_format") == "channels_first"
    return [(4, *sides) if first else (*sides, 4)]


def every(kind: str) -> Iterator[dict[str, Any]]:
    """The layer as it is usually, then with one setting at a time at another value."""
    plain = PLAIN[kind]
    yield plain
    for key in {**VALUES, **{key: () for own, key in OWN if own == kind}}:
        for value in OWN.get((kind, key), VALUES.get(key, ())):
            yield {**plain, key: value}
