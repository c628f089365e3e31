"""Pictures from a formula: ten kinds of coloured gratings under uneven light, for benchmarks that need thousands.

Nothing is downloaded and nothing stored, yet pictures of one kind resemble each other, so that embeddings of them have
near and far neighbours as those of photographs have.
"""

import numpy as np

N_KINDS = 10
LABELS = tuple(f"grating {kind}" for kind in range(N_KINDS))


def make_pictures(n: int, *, side: int = 224, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Make some pictures.

    Args:
        n: how many.
        side: height and width; a multiple of 8.
        seed: the same seed gives the same pictures.

    Returns:
        float32 (n, 3, side, side), about -2 to 2 (as after the usual normalisation), and int (n,) kinds.
    """
    random = np.random.default_rng(seed)
    kinds = random.integers(0, N_KINDS, n)
    rows, columns = np.mgrid[0:side, 0:side].astype(np.float32) / side
    pictures = np.empty((n, 3, side, side), np.float32)
    for picture, kind in zip(pictures, kinds.tolist(), strict=True):
        angle = np.pi * kind / N_KINDS + random.normal(0.0, 0.05)
        waves = (4 + 3 * (kind % 4)) * random.uniform(0.9, 1.1)
        phase = 2 * np.pi * (waves * (rows * np.cos(angle) + columns * np.sin(angle)) + random.uniform())
        light = np.kron(random.normal(0.0, 0.3, (8, 8)), np.ones((side // 8, side // 8)))
        colour = np.cos(kind + np.arange(3)) + random.normal(0.0, 0.2, 3)
        picture[:] = colour[:, None, None] * np.cos(phase) + light + random.normal(0.0, 0.1, (3, side, side))
    return pictures, kinds
