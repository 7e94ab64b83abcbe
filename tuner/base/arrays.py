"""Type aliases for numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Int32Array = NDArray[np.int32]
AnyArray = NDArray[Any]
