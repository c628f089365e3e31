"""Projection: a few numbers an entry from which a lower bound of its distance to any query follows.

Let x and q be an entry and a query after subtracting the store's centre, P the rows of r orthonormal directions, x⊥ =
x - PᵀPx. Then

    ‖Px-Pq‖² + (‖x⊥‖-‖q⊥‖)² <= ‖x-q‖²

and, written as a score, half of the left side is ½‖x‖² - Px·Pq - ‖x⊥‖‖q⊥‖ + ½‖q‖²: one dot product of the entry's
numbers [Px, ‖x⊥‖, ½‖x‖²] with the query's weights [-Pq, -‖q⊥‖, 1], plus a constant of the query. So the bounds of a
whole store cost one matrix-vector product. With n columns of numbers there are n - 2 directions; "r + 1 numbers an
entry" is thus r - 1 directions. With the axes themselves for directions there is no remainder, the columns are dim +
1, and the bound is the distance: this is the plain matrix product.

Why rounding never loses an answer. Let u = 2^-24 and c the number of columns. The numbers are computed in float64
(‖x⊥‖ from x - PᵀPx itself: √(‖x‖²-‖Px‖²) loses it to cancellation) and rounded once to float32, the weights too, and
a float32 sum of c products in any order is off by at most c·u times the sum of their magnitudes. That sum is at most
½‖x‖² + ‖x‖‖q‖ <= ‖x‖² + ½‖q‖², so

    |computed - exact| <= (c+3)·u·(‖x‖² + ½‖q‖²)

The entry's part of it is taken off ½‖x‖² before that is stored, the query's part is added to the limit; so the slack
grows with (‖x‖+‖q‖)² and costs no operation per entry. ‖q⊥‖ may come from ‖q‖²-‖Pq‖², which in float64 is off by less
than 4·dim·2^-53·‖q‖²: that much is added, and a larger ‖q⊥‖ only lowers the score. Numbers are divided by a power of
two near the store's spread, which is exact and keeps squares in range; an entry beyond 2^50 times that spread gets
the score -inf and is always measured.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

UNIT = 2.0**-24
"""u: largest relative error of one rounding to float32."""

_SPARE_ROUNDINGS = 8
"""Covers the 3 roundings of the numbers, weights and limit, with room for second-order terms."""

_LARGEST_HALF_NORM = 2.0**100
"""½‖x‖² in units of the spread; above, float32 sums might overflow."""

_FLUSHED = 2.0**-125
"""Twice the smallest normal float32: a product that underflows is off by less, whether or not it is flushed to zero."""


class Scores(NamedTuple):
    """What a query asks of the numbers."""

    weights: np.ndarray
    """float32 (n_queries, n_columns)."""

    half_norms: np.ndarray
    """float64 (n_queries,): ½‖q‖² in units of the spread."""


@dataclass(frozen=True, eq=False)
class Projection:
    """Centre, spread and directions."""

    center: np.ndarray
    """float64 (dim,)."""

    spread: float
    """A power of two."""

    directions: np.ndarray | None
    """float64 (n_directions, dim), orthonormal rows; None: the axes themselves."""

    @property
    def n_columns(self) -> int:
        """Numbers an entry."""
        return len(self.center) + 1 if self.directions is None else len(self.directions) + 2

    @cached_property
    def _error(self) -> float:
        """(c + 8)·u."""
        return (self.n_columns + _SPARE_ROUNDINGS) * UNIT

    @cached_property
    def _inverse_spread(self) -> float:
        """1 / spread, exact."""
        return 1.0 / self.spread

    @cached_property
    def _transposed(self) -> np.ndarray | None:
        """float64 (dim, n_directions)."""
        return None if self.directions is None else self.directions.T

    def numbers(self, keys: np.ndarray) -> np.ndarray:
        """The numbers of entries.

        Args:
            keys: float32 (m, dim), finite.

        Returns:
            float32 (n_columns, m): Px, ‖x⊥‖ (unless the axes are the directions), ½‖x‖² less its share of the slack.
        """
        if len(keys) == 1:
            return self._numbers_of_one(keys[0])
        numbers = np.empty((self.n_columns, len(keys)), np.float32)
        centred = (keys - self.center) * self._inverse_spread
        half_norms = np.einsum("nd,nd->n", centred, centred) * 0.5
        wild = half_norms > _LARGEST_HALF_NORM
        if wild.any():
            centred[wild] = 0.0
            half_norms[wild] = np.inf
        if self.directions is None:
            numbers[:-1] = centred.T
        else:
            projected = centred @ self._transposed
            centred -= projected @ self.directions
            numbers[:-2] = projected.T
            numbers[-2] = np.sqrt(np.einsum("nd,nd->n", centred, centred))
        numbers[-1] = np.where(wild, -np.inf, half_norms * (1.0 - 2.0 * self._error))
        return numbers

    def _numbers_of_one(self, key: np.ndarray) -> np.ndarray:
        """The same for one entry, float32 (n_columns, 1), by vector operations: half the time."""
        numbers = np.zeros((self.n_columns, 1), np.float32)
        centred = key - self.center
        centred *= self._inverse_spread
        half_norm = 0.5 * float(np.vdot(centred, centred))
        if not half_norm <= _LARGEST_HALF_NORM:
            numbers[-1] = -np.inf
        elif self.directions is None:
            numbers[:-1, 0] = centred
            numbers[-1] = half_norm * (1.0 - 2.0 * self._error)
        else:
            projected = self.directions.dot(centred)
            centred -= projected.dot(self.directions)
            numbers[:-2, 0] = projected
            numbers[-2] = math.sqrt(np.vdot(centred, centred))
            numbers[-1] = half_norm * (1.0 - 2.0 * self._error)
        return numbers

    def half_numbers(self, keys: np.ndarray) -> np.ndarray:
        """float32 (m,): the last of `numbers` alone, for keys that stay in the store."""
        centred = (keys - self.center) * self._inverse_spread
        half_norms = np.einsum("nd,nd->n", centred, centred) * 0.5
        numbers: np.ndarray = np.where(half_norms > _LARGEST_HALF_NORM, -np.inf, half_norms * (1.0 - 2.0 * self._error))
        return numbers.astype(np.float32)

    def scores(self, queries: np.ndarray) -> Scores:
        """The weights of queries, float32 (n_queries, dim)."""
        if len(queries) == 1:
            return self._scores_of_one(queries[0])
        centred = queries - self.center
        centred *= self._inverse_spread
        half_norms = np.einsum("qd,qd->q", centred, centred) * 0.5
        if not half_norms.max(initial=0.0) <= _LARGEST_HALF_NORM:
            centred[half_norms > _LARGEST_HALF_NORM] = 0.0  # their scores are not looked at
        weights = np.empty((len(queries), self.n_columns), np.float32)
        weights[:, -1] = 1.0
        if self._transposed is None:
            np.negative(centred, out=weights[:, :-1], casting="unsafe")
            return Scores(weights, half_norms)
        projected = centred @ self._transposed
        np.negative(projected, out=weights[:, :-2], casting="unsafe")
        remainders = np.minimum(half_norms, _LARGEST_HALF_NORM) * (2.0 + len(self.center) * 2.0**-50)
        remainders -= np.einsum("qr,qr->q", projected, projected)
        np.maximum(remainders, 0.0, out=remainders)
        np.negative(np.sqrt(remainders), out=weights[:, -2], casting="unsafe")
        return Scores(weights, half_norms)

    def _scores_of_one(self, query: np.ndarray) -> Scores:
        """The same for one query by vector operations: half the time, and time counts most for one."""
        weights = np.ones((1, self.n_columns), np.float32)
        centred = query - self.center
        centred *= self._inverse_spread
        half_norm = 0.5 * float(np.vdot(centred, centred))
        if not half_norm <= _LARGEST_HALF_NORM:
            pass  # the scores are not looked at
        elif self.directions is None:
            np.negative(centred, out=weights[0, :-1], casting="unsafe")
        else:
            projected = self.directions.dot(centred)
            np.negative(projected, out=weights[0, :-2], casting="unsafe")
            remainder = half_norm * (2.0 + len(self.center) * 2.0**-50) - float(np.vdot(projected, projected))
            weights[0, -2] = -math.sqrt(max(0.0, remainder))
        return Scores(weights, np.array((half_norm,)))

    def is_wild(self, half_norm: float) -> bool:
        """Whether a query lies so far out that scores say nothing: every entry must be measured."""
        return not half_norm <= _LARGEST_HALF_NORM

    def limit(self, squared_distance: float, half_norm: float) -> float:
        """No entry within √`squared_distance` of a query has a computed score above this.

        Args:
            squared_distance: in the store's own units.
            half_norm: ½‖q‖² of the query in units of the spread.
        """
        half_distance = 0.5 * squared_distance / self.spread**2
        slack = self._error * (half_distance + half_norm) + self.n_columns * _FLUSHED * (2.0 + half_norm)
        return half_distance - half_norm + slack
