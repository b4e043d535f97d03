"""How the tensors of operators are called: slots of raw nodes, modules by their weights."""

from __future__ import annotations

import re

WEIGHT_NAME = re.compile(r"(.+?)[._/](?:weight|kernel|gamma|scale|[wW])")
# Slots of tensors in operators that are often met and kept raw.
ARGUMENTS = {
    "LSTM": ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"),
    "GRU": ("X", "W", "R", "B", "sequence_lens", "initial_h"),
    "RNN": ("X", "W", "R", "B", "sequence_lens", "initial_h"),
    "PRelu": ("X", "slope"),
    "Conv": ("X", "W", "B"),
    "ConvTranspose": ("X", "W", "B"),
    "Gemm": ("A", "B", "C"),
    "BatchNormalization": ("X", "scale", "B", "input_mean", "input_var"),
    "InstanceNormalization": ("input", "scale", "B"),
    "LayerNormalization": ("X", "Scale", "B"),
    "GroupNormalization": ("X", "scale", "bias"),
}
# Inputs that are settings, not weights, whatever their dtype.
SETTINGS = {
    "Resize": (1, 2, 3),
    "Upsample": (1,),
    "Pad": (1, 2, 3),
    "Clip": (1, 2),
    "Dropout": (1, 2),
    "OneHot": (1, 2),
    "NonMaxSuppression": (2, 3, 4),
    "Range": (0, 1, 2),
}
