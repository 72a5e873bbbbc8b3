"""Noise: Gaussian, shot, impulse and speckle. Arrays are float32 0..1 (n, 3, h, w)."""

import numpy as np

from spurless.data.corruptions.streams import Streams

GAUSSIAN_STD = (0.04, 0.06, 0.08, 0.09, 0.10)
SHOT_PHOTONS = (500, 250, 100, 75, 50)  # photons of a white pixel
IMPULSE_SHARE = (0.01, 0.02, 0.03, 0.05, 0.07)
SPECKLE_STD = (0.06, 0.1, 0.12, 0.16, 0.2)


def gaussian_noise(x: np.ndarray, level: int, rng: Streams) -> np.ndarray:
    """x + N(0, σ²)"""
    return x + np.float32(GAUSSIAN_STD[level - 1]) * rng.normal(*x.shape[1:])


def shot_noise(x: np.ndarray, level: int, rng: Streams) -> np.ndarray:
    """Poisson(x·c) / c"""
    photons = SHOT_PHOTONS[level - 1]
    return (rng.poisson(x * photons) / photons).astype(np.float32)


def impulse_noise(x: np.ndarray, level: int, rng: Streams) -> np.ndarray:
    """Each colour value, not each pixel, becomes 0 or 1 with the given probability."""
    share = IMPULSE_SHARE[level - 1]
    u = rng.uniform(0, 1, *x.shape[1:])
    return np.where(u < share / 2, np.float32(0), np.where(u < share, np.float32(1), x))


def speckle_noise(x: np.ndarray, level: int, rng: Streams) -> np.ndarray:
    """x + x·N(0, σ²)"""
    result: np.ndarray = x + x * np.float32(SPECKLE_STD[level - 1]) * rng.normal(*x.shape[1:])
    return result
