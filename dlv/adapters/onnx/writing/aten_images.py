"""aten operations that resize and sample images."""

from __future__ import annotations

from typing import Any

from dlv.adapters.onnx.graph import Graph, Item, Value
from dlv.adapters.onnx.promotion import together
from dlv.adapters.onnx.recorded import Rule, table
from dlv.adapters.onnx.rules.lengths import calculate
from dlv.adapters.onnx.writing.aten_shape import lengths_of
from dlv.errors import UsageError

IMAGES: dict[str, Rule] = {}
_rule = table(IMAGES)


def _resize(kind: str, mode: str, place: str, nearest: str | None = None) -> Rule:
    def rule(g: Graph, x: Item, size: Any, *options: Any) -> Value:
        value = g.value(x)
        given = list(options)
        aligned = bool(given.pop(0)) if kind != "nearest" else False
        how = "align_corners" if aligned else place
        axes = list(range(2, value.rank))
        attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": how, "axes": axes}
        if nearest is not None:
            attrs["nearest_mode"] = nearest
        if mode == "cubic":
            attrs["cubic_coeff_a"] = -0.75
        # Overloads end with one list of factors, or with a factor for each axis.
        factors = given[0] if given and isinstance(given[0], (list, tuple)) else given
        named = factors and all(isinstance(item, (int, float)) for item in factors)
        lengths = lengths_of(g, value)[2:]
        if named and not aligned:
            del attrs["axes"]
            scales = g.constant([1.0, 1.0, *map(float, factors)], "float32")
            wanted = (
                None
                if size is not None
                else [_grown(n, f) for n, f in zip(lengths, factors, strict=True)]
            )
            shape = (*(value.shape or ())[:2], *(wanted or [_plain(item) for item in size]))
            return g.op("Resize", [value, None, scales], attrs, shape=shape)
        if size is None:
            size = [
                _grown(n, f) if isinstance(n, int) else _times(g, n, f)
                for n, f in zip(lengths, factors, strict=True)
            ]
        shape = (*(value.shape or ())[:2], *(_plain(item) for item in size))
        return g.op("Resize", [value, None, None, g.vector(size)], attrs, shape=shape)

    return rule


def _plain(length: Any) -> Any:
    return length if isinstance(length, int) else None


def _grown(length: int | Value, factor: float) -> int | None:
    return int(length * factor) if isinstance(length, int) else None


def _times(g: Graph, length: Value, factor: float) -> Value:
    return calculate(
        g, "floor", [calculate(g, "mul", [calculate(g, "sym_float", [length]), factor])]
    )


for _n in (1, 2, 3):
    IMAGES[f"upsample_nearest{_n}d"] = _resize("nearest", "nearest", "asymmetric", "floor")
    IMAGES[f"_upsample_nearest_exact{_n}d"] = _resize(
        "nearest", "nearest", "half_pixel", "round_prefer_ceil"
    )
IMAGES["upsample_linear1d"] = _resize("linear", "linear", "half_pixel")
IMAGES["upsample_bilinear2d"] = IMAGES["upsample_trilinear3d"] = IMAGES["upsample_linear1d"]
IMAGES["upsample_bicubic2d"] = _resize("cubic", "cubic", "half_pixel")


@_rule("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(g: Graph, x: Item, grid: Item, mode: int, padding: int, aligned: bool) -> Value:
    value, places = together(g, [x, grid])
    attrs = {
        "mode": ("linear", "nearest", "cubic")[mode],
        "padding_mode": ("zeros", "border", "reflection")[padding],
        "align_corners": int(aligned),
    }
    shape = (*(value.shape or ())[:2], *(places.shape or ())[1:-1])
    return g.op("GridSample", [value, places], attrs, shape=shape)


@_rule("pixel_shuffle")
def pixel_shuffle(g: Graph, x: Item, upscale_factor: int) -> Value:
    value = g.value(x)
    *leading, depth, height, width = lengths_of(g, value)
    r = upscale_factor
    rank = value.rank
    if not isinstance(depth, int):
        raise UsageError("pixel_shuffle takes a fixed number of channels")
    parts = g.reshape(value, [*leading, depth // r**2, r, r, height, width])
    order = [*range(rank - 2), rank, rank - 2, rank + 1, rank - 1]
    ends = [_scaled(g, height, r), _scaled(g, width, r)]
    return g.reshape(g.transpose(parts, order), [*leading, depth // r**2, *ends])


def _scaled(g: Graph, length: int | Value, factor: int) -> int | Value:
    return length * factor if isinstance(length, int) else calculate(g, "mul", [length, factor])
