"""Models of Keras: its applications, untrained, and models as its users write them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from tests.brought.trying import ENGINES, Brought, Row, outcome, same_bytes

APPLICATIONS: dict[str, dict[str, Any]] = {
    "ConvNeXtTiny": {},
    "DenseNet121": {},
    "EfficientNetB0": {},
    "EfficientNetV2B0": {},
    "InceptionV3": {"input_shape": (96, 96, 3)},
    "MobileNet": {},
    "MobileNetV2": {},
    "MobileNetV3Small": {},
    "MobileNetV3Large": {},
    "ResNet50": {},
    "ResNet50V2": {},
    "VGG16": {},
    "Xception": {"input_shape": (96, 96, 3)},
}


def names() -> list[str]:
    from tests.adapters.keras.user_models import MODELS

    applications = [f"application {name}" for name in APPLICATIONS]
    return [*applications, *(f"user's {name}" for name in MODELS)]


def build(name: str) -> Any:
    import keras

    kind, _, model = name.partition(" ")
    if kind == "user's":
        from tests.adapters.keras.user_models import MODELS

        return MODELS[model][0](keras)
    settings: dict[str, Any] = {"input_shape": (64, 64, 3), **APPLICATIONS[model]}
    return getattr(keras.applications, model)(weights=None, classes=10, **settings)


def row_of(name: str, folder: Path) -> Row:
    """From both of Keras' files; what the `.keras` one holds goes through all columns."""
    import dlv.adapters.keras.files as keras_files
    from tests.adapters.keras.comparing import drawn, filled

    model = filled(build(name))
    given = drawn(model, 2, seed=3)
    answer = model(given if len(given) > 1 else given[0], training=False)
    wanted = [x.detach().numpy() for x in _listed(answer)]
    row: Row = {}
    for suffix, format_, column in ((".keras", "keras", "bytes"), (".h5", "hdf5", "h5 bytes")):
        path = folder / f"model{suffix}"
        model.save(path)
        row[column] = outcome(partial(same_bytes, path, format_))
    checkpoint = keras_files.open(str(folder / "model.keras"))
    try:
        if checkpoint.network is None:
            return {**row, "imported": f"refused: {checkpoint.notes[0][:60]}"}
        row["imported"] = "equal"
        names = [item.name for item in checkpoint.network.inputs]
        inputs = dict(zip(names, given, strict=True))
        brought = Brought(checkpoint, inputs, wanted, folder=str(folder))
        for engine in ENGINES:
            row[engine] = outcome(partial(brought.by, engine), wanted)
        row["module"] = outcome(brought.module, wanted)
        row["ONNX out"] = outcome(brought.onnx, wanted)
        row["Keras out"] = outcome(brought.keras, wanted)
        return row
    finally:
        checkpoint.close()


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
