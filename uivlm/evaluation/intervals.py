"""95 % confidence intervals of rates in [0, 1]: from bootstrap samples, or from few episodes."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

CONFIDENCE_LEVEL = 0.95
Z_95 = 1.959964  # two-sided 95 % of the normal distribution

Interval = tuple[float, float]  # low, high


def percentile_interval(samples: NDArray[np.float64]) -> Interval:
    """The interval of bootstrap samples [N]."""
    low, high = np.quantile(samples, [(1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2])
    return float(low), float(high)


def wilson_interval(successes: float, trials: int) -> Interval:
    """Wilson's score interval of a success rate (Wilson 1927).

    Also of a mean of rates in [0, 1], whose sum is `successes`: none varies more than trials of 0 and 1 with
    the same mean.
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"got {successes} successes in {trials} trials; expected 0 to {max(1, trials)}")
    rate = successes / trials
    scale = 1 + Z_95**2 / trials
    center = (rate + Z_95**2 / (2 * trials)) / scale
    half_width = Z_95 * math.sqrt(rate * (1 - rate) / trials + Z_95**2 / (4 * trials**2)) / scale
    return max(0.0, center - half_width), min(1.0, center + half_width)


def mean_interval(rates: Sequence[float], intervals: Sequence[Interval]) -> Interval:
    """The interval of the mean of independent rates, from their own ("square and add", Newcombe 1998)."""
    middle = sum(rates) / len(rates)
    below = math.hypot(*(rate - low for rate, (low, _) in zip(rates, intervals, strict=True))) / len(rates)
    above = math.hypot(*(high - rate for rate, (_, high) in zip(rates, intervals, strict=True))) / len(rates)
    return max(0.0, middle - below), min(1.0, middle + above)
