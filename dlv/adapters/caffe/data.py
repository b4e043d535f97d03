"""The shapes of what Caffe's data layers bring in, as far as the file tells them."""

from __future__ import annotations

from dlv.adapters.caffe.spec import Layer, checked, shape_of
from dlv.adapters.protobuf.message import Message
from dlv.errors import Damaged
from dlv.network.sizes import Shape


def tops_of(layer: Layer) -> list[tuple[str, Shape | None]]:
    """(blob, shape) of each top; unknown axes are None, an unknown rank is no shape."""
    read = _READERS.get(layer.type, _images)
    shapes = read(layer)
    return [
        (top, shapes[index] if index < len(shapes) else None)
        for index, top in enumerate(layer.tops)
    ]


def _given(layer: Layer) -> list[Shape | None]:
    shapes: list[Shape | None] = [
        shape_of(message) for message in layer.param("input").messages("shape")
    ]
    if len(shapes) == 1:
        return shapes * len(layer.tops)
    if shapes and len(shapes) != len(layer.tops):
        raise Damaged(f"{layer.where()} has {len(layer.tops)} tops and {len(shapes)} shapes")
    return shapes


def _dummy(layer: Layer) -> list[Shape | None]:
    param = layer.param("dummy_data")
    shapes: list[Shape | None] = [shape_of(message) for message in param.messages("shape")]
    if not shapes:
        sides = [param.counts(name) for name in ("num", "channels", "height", "width")]
        count = max(map(len, sides))
        for index in range(count):
            shape = [side[index] if index < len(side) else side[-1] for side in sides if side]
            shapes.append(checked(param, shape) if len(shape) == 4 else None)
    return shapes * len(layer.tops) if len(shapes) == 1 else shapes


def _memory(layer: Layer) -> list[Shape | None]:
    param = layer.param("memory_data")
    sides = [param.count(name, 0) for name in ("batch_size", "channels", "height", "width")]
    shape: Shape = checked(param, sides)
    return [tuple(side or None for side in shape), (shape[0] or None,)]


def _images(layer: Layer) -> list[Shape | None]:
    """Pictures and their labels; the data base knows the size if they are not cropped."""
    transform = layer.param("transform")
    own = Message(layer.body.file)
    for name in ("data", "image_data", "window_data"):
        if f"{name}_param" in layer.body:
            own = layer.param(name)
    crop = transform.count("crop_size", 0) or own.count("crop_size", 0)
    height = crop or own.count("new_height", 0)
    width = crop or own.count("new_width", 0)
    depth: int | None = None
    if transform.flag("force_gray", False):
        depth = 1
    elif transform.flag("force_color", False) or layer.type == "WindowData":
        depth = 3
    elif len(transform.fields.get("mean_value", ())) > 1:  # one for each
        depth = len(transform.fields["mean_value"])
    elif layer.type == "ImageData":
        depth = 3 if own.flag("is_color", True) else 1
    batch = own.count("batch_size", 0)
    checked(layer.body, [batch, depth or 1, height, width])
    return [(batch or None, depth, height or None, width or None), (batch or None,)]


def _unknown(layer: Layer) -> list[Shape | None]:  # noqa: ARG001
    return []


_READERS = {
    "Input": _given,
    "DummyData": _dummy,
    "MemoryData": _memory,
    "HDF5Data": _unknown,
    "Python": _unknown,
}
