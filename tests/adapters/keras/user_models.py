"""Models as users of Keras make them, for the tests of what dlv does with their files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Make = Callable[[Any], Any]


def cnn(k: Any) -> Any:
    """With augmentation in front, as in Keras' own guides."""
    layers = k.layers
    return k.Sequential(
        [
            k.Input((24, 24, 3)),
            layers.RandomFlip("horizontal"),
            layers.RandomRotation(0.1),
            layers.Rescaling(1 / 255),
            layers.Conv2D(8, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(12, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Dropout(0.2),
            layers.Flatten(),
            layers.Dense(16, activation="relu"),
            layers.Dense(5, activation="softmax"),
        ]
    )


def plain_cnn(k: Any) -> Any:
    layers = k.layers
    return k.Sequential([k.Input((24, 24, 3)), *cnn(k).layers[2:], layers.Dense(3)])


def two_inputs(k: Any) -> Any:
    layers = k.layers
    a, b = k.Input((10,), name="numbers"), k.Input((4,), name="more")
    x = layers.Concatenate()([layers.Dense(8, activation="relu")(a), layers.Dense(6)(b)])
    return k.Model([a, b], [layers.Dense(3, name="one")(x), layers.Dense(1, name="two")(x)])


def lstm_text(k: Any) -> Any:
    layers = k.layers
    return k.Sequential(
        [
            k.Input((12,), dtype="int32"),
            layers.Embedding(20, 6, mask_zero=True),
            layers.LSTM(8),
            layers.Dense(1, activation="sigmoid"),
        ]
    )


def mean_text(k: Any) -> Any:
    layers = k.layers
    x = k.Input((12,), dtype="int32")
    y = layers.Dropout(0.1)(layers.Embedding(20, 6, mask_zero=True)(x))
    y = layers.Dense(8, activation="relu")(layers.GlobalAveragePooling1D()(y))
    return k.Model(x, layers.Dense(1, activation="sigmoid")(y))


def both_ways(k: Any) -> Any:
    layers = k.layers
    x = k.Input((12, 5))
    y = layers.Bidirectional(layers.GRU(6, return_sequences=True))(x)
    return k.Model(x, layers.TimeDistributed(layers.Dense(3))(y))


def causal(k: Any) -> Any:
    layers = k.layers
    x = y = k.Input((16, 4))
    for dilation in (1, 2, 4):
        y = layers.Conv1D(4, 3, padding="causal", dilation_rate=dilation, activation="relu")(y)
        y = layers.SpatialDropout1D(0.1)(y)
    return k.Model(x, layers.Dense(1)(layers.Add()([x, y])))


def mobile(k: Any) -> Any:
    layers = k.layers
    x = y = k.Input((20, 20, 3))
    y = layers.ReLU(6.0)(layers.BatchNormalization()(layers.Conv2D(8, 3, strides=2)(y)))
    for stride in (1, 2):
        y = layers.ZeroPadding2D(((0, 1), (0, 1)))(y)
        y = layers.DepthwiseConv2D(3, strides=stride, use_bias=False)(y)
        y = layers.BatchNormalization(momentum=0.9, epsilon=1e-5, scale=False)(y)
        y = layers.SeparableConv2D(8, 3, padding="same", activation="swish")(y)
    return k.Model(x, layers.Dense(4)(layers.GlobalAveragePooling2D()(y)))


def transformer(k: Any) -> Any:
    layers = k.layers
    x = k.Input((10, 8))
    y = layers.LayerNormalization(epsilon=1e-6)(x)
    y = layers.MultiHeadAttention(2, 4)(y, y)
    y = layers.Add()([x, y])
    z = layers.Dense(8)(layers.Dense(16, activation="gelu")(layers.LayerNormalization()(y)))
    return k.Model(x, layers.Add()([y, z]))


def residual(k: Any) -> Any:
    layers = k.layers
    x = y = k.Input((12, 12, 4))
    for _ in range(2):
        z = layers.Conv2D(4, 3, padding="same", use_bias=False)(y)
        z = layers.Activation("relu")(layers.BatchNormalization()(z))
        y = layers.ReLU()(layers.add([layers.Conv2D(4, 3, padding="same")(z), y]))
    return k.Model(x, layers.Dense(3)(layers.GlobalMaxPooling2D()(y)))


def unet(k: Any) -> Any:
    layers = k.layers
    x = k.Input((16, 16, 2))
    a = layers.Conv2D(4, 3, padding="same", activation="relu")(x)
    b = layers.Conv2D(6, 3, padding="same", activation="relu")(layers.MaxPooling2D()(a))
    c = layers.Conv2D(8, 3, padding="same", activation="elu")(layers.MaxPooling2D()(b))
    d = layers.Conv2DTranspose(6, 3, strides=2, padding="same")(c)
    e = layers.concatenate([layers.UpSampling2D()(layers.Concatenate()([d, b])), a])
    return k.Model(x, layers.Conv2D(1, 1, activation="sigmoid")(e))


def autoencoder(k: Any) -> Any:
    layers = k.layers
    inside = k.Sequential([k.Input((20,)), layers.Dense(6), layers.LeakyReLU()], name="encoder")
    back = k.Sequential([k.Input((6,)), layers.Dense(20, activation="tanh")], name="decoder")
    x = k.Input((20,))
    return k.Model(x, back(inside(x)))


def siamese(k: Any) -> Any:
    layers = k.layers
    a, b = k.Input((8,)), k.Input((8,))
    tower = k.Sequential([k.Input((8,)), layers.Dense(5, activation="relu"), layers.Dense(4)])
    left, right = tower(a), tower(b)
    return k.Model([a, b], layers.Dense(1)(layers.Subtract()([left, right])))


def fine_tuned(k: Any) -> Any:
    """A base in a model, called with `training=False`, as guides on fine-tuning have it."""
    layers = k.layers
    base = residual(k)
    base.trainable = False
    x = k.Input((12, 12, 4))
    y = layers.Dropout(0.3)(base(x, training=False))
    return k.Model(x, layers.Dense(2)(y))


def norms(k: Any) -> Any:
    layers = k.layers
    x = k.Input((6, 6, 8))
    y = layers.GroupNormalization(4)(x)
    y = layers.BatchNormalization(center=False)(y)
    y = layers.LayerNormalization(axis=[1, 2, 3])(y)
    return k.Model(x, layers.RMSNormalization()(layers.UnitNormalization()(y)))


def rectifiers(k: Any) -> Any:
    layers = k.layers
    x = k.Input((6, 5))
    y = layers.PReLU(shared_axes=[1])(layers.Dense(4)(x))
    y = layers.ELU(0.5)(layers.LeakyReLU(negative_slope=0.2)(y))
    return k.Model(x, layers.Dense(2, activation="softplus")(y))


def simple_rectifiers(k: Any) -> Any:
    layers = k.layers
    x = k.Input((6, 5))
    y = layers.ELU(0.5)(layers.LeakyReLU(negative_slope=0.2)(layers.Dense(4)(x)))
    return k.Model(x, layers.Dense(2, activation="softplus")(y))


def normalised(k: Any) -> Any:
    layers = k.layers
    x = k.Input((4,))
    y = layers.Normalization(mean=[1.0, 2.0, 3.0, 4.0], variance=[1.0, 4.0, 9.0, 16.0])(x)
    return k.Model(x, layers.Dense(3)(y))


def temperature(k: Any) -> Any:
    layers = k.layers
    x = k.Input((6,))
    y = layers.Dense(5)(x)
    return k.Model(x, [layers.Softmax()(y / 2.5), layers.Softmax()(layers.Rescaling(0.5)(y))])


def ids_as_floats(k: Any) -> Any:
    """Nothing is said about the dtype of the input, as in many examples."""
    layers = k.layers
    return k.Sequential(
        [k.Input((12,)), layers.Embedding(20, 6), layers.Flatten(), layers.Dense(2)]
    )


def functions(k: Any) -> Any:
    x = k.Input((6, 4))
    y = k.ops.relu(x * 2.0 - 1.0)
    y = k.ops.concatenate([y, x], axis=-1)
    return k.Model(x, k.layers.Dense(3)(y[:, -1]))


def constants(k: Any) -> Any:
    import numpy as np

    x = k.Input((6, 4))
    return k.Model(x, k.layers.Dense(2)(x + np.arange(4, dtype="float32")))


def scaled_blocks(k: Any) -> Any:
    """As in ConvNeXt: a factor for each channel, which its block began with."""
    from keras.src.applications.convnext import LayerScale

    x = y = k.Input((8, 8, 4))
    y = k.layers.DepthwiseConv2D(3, padding="same")(y)
    y = k.layers.Dense(4)(k.layers.Activation("gelu")(k.layers.Dense(8)(y)))
    y = k.layers.Add()([x, LayerScale(1e-6, 4)(y)])
    return k.Model(x, k.layers.Dense(2)(k.layers.GlobalAveragePooling2D()(y)))


def translator(k: Any) -> Any:
    """From one language to another, with attention to what counts."""
    layers = k.layers
    a, b = k.Input((9,), dtype="int32"), k.Input((7,), dtype="int32")
    source, target = (layers.Embedding(6, 4, mask_zero=True)(each) for each in (a, b))
    source = layers.Bidirectional(layers.LSTM(2, return_sequences=True))(source)
    target = layers.MultiHeadAttention(2, 3)(target, target, use_causal_mask=True)
    mixed = layers.MultiHeadAttention(2, 3, dropout=0.1)(target, source)
    both = layers.LayerNormalization()(layers.Add()([target, mixed]))
    return k.Model([a, b], layers.Dense(6, activation="softmax")(both))


def sharpened(k: Any) -> Any:
    layers = k.layers
    x = k.Input((6, 5, 3))
    y = layers.UpSampling2D((2, 3), interpolation="bilinear")(x)
    y = layers.PReLU(shared_axes=[1, 2])(layers.Conv2D(4, 3)(y))
    return k.Model(x, layers.UnitNormalization(axis=[1, 2])(y))


# Name -> the model, and the layers that are refused by name; none: all of it is computed.
MODELS: dict[str, tuple[Make, set[str]]] = {
    "cnn with augmentation": (cnn, {"RandomFlip", "RandomRotation"}),
    "cnn": (plain_cnn, set()),
    "two inputs": (two_inputs, set()),
    "lstm with a mask": (lstm_text, set()),
    "mean with a mask": (mean_text, set()),
    "both ways": (both_ways, set()),
    "causal": (causal, {"SpatialDropout1D"}),
    "mobile": (mobile, set()),
    "transformer": (transformer, set()),
    "residual": (residual, set()),
    "unet": (unet, set()),
    "autoencoder": (autoencoder, set()),
    "siamese": (siamese, set()),
    "fine tuned": (fine_tuned, set()),
    "norms": (norms, set()),
    "rectifiers": (rectifiers, set()),
    "simple rectifiers": (simple_rectifiers, set()),
    "normalised": (normalised, {"Normalization"}),
    "temperature": (temperature, set()),
    "ids as floats": (ids_as_floats, set()),
    "functions": (functions, set()),
    "constants": (constants, set()),
    "scaled blocks": (scaled_blocks, set()),
    "translator": (translator, set()),
    "sharpened": (sharpened, set()),
}
