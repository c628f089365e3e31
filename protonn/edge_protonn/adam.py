"""Adam (Kingma and Ba, ICLR 2015) over a few arrays."""

import numpy as np


class Adam:
    """One optimiser for a list of arrays; the step of each array is scaled by a number of its own."""

    def __init__(self, arrays: list[np.ndarray], scales: list[float]) -> None:
        """Args:
        arrays: the parameters' start; only their shapes are kept.
        scales: step of each array at learning rate 1; 0 leaves it as it is.
        """
        self._scales = scales
        self._means = [np.zeros_like(array, np.float64) for array in arrays]
        self._squares = [np.zeros_like(array, np.float64) for array in arrays]
        self._steps = 0

    def step(self, arrays: list[np.ndarray], gradients: list[np.ndarray], learning_rate: float) -> list[np.ndarray]:
        """The arrays after one step; the ones given stay as they are."""
        self._steps += 1
        moved = []
        for position, (array, gradient, scale) in enumerate(zip(arrays, gradients, self._scales, strict=True)):
            if scale == 0.0:
                moved.append(array)
                continue
            mean, square = self._means[position], self._squares[position]
            mean += 0.1 * (gradient - mean)
            square += 0.001 * (gradient * gradient - square)
            direction = mean / (1.0 - 0.9**self._steps) / (np.sqrt(square / (1.0 - 0.999**self._steps)) + 1e-8)
            moved.append(array - learning_rate * scale * direction)
        return moved
