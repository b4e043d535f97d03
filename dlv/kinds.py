"""Names of types that many rooms use in annotations; numpy is not loaded for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

Raw: TypeAlias = bytes | bytearray | memoryview

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]
    Floats: TypeAlias = NDArray[np.float64]
    Bytes: TypeAlias = NDArray[np.uint8]
    Longs: TypeAlias = NDArray[np.int64]
    Places: TypeAlias = NDArray[np.intp]
else:
    Array = Floats = Bytes = Longs = Places = Any
