"""Contrast, brightness, saturation, JPEG, pixelation and elastic warps. Arrays are float32 0..1 (n, 3, h, w)."""

import io
from collections.abc import Callable

import numpy as np

from spurless.data.corruptions.resample import sample
from spurless.data.corruptions.streams import Streams

CONTRAST_FACTOR = (0.75, 0.5, 0.4, 0.3, 0.15)
BRIGHTNESS_ADDED = (0.05, 0.1, 0.15, 0.2, 0.3)
SATURATE = ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2))  # saturation times a, plus b
JPEG_QUALITY = (80, 65, 58, 50, 40)
PIXELATE_SCALE = (0.95, 0.9, 0.85, 0.75, 0.65)
# Largest shift, its smoothness, affine jitter: all as parts of the image size.
ELASTIC = ((0.0, 0.0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03))


def contrast(x: np.ndarray, level: int, rng: Streams) -> np.ndarray:
    """Closer to the mean of each channel."""
    mean = x.mean((2, 3), keepdims=True, dtype=np.float64).astype(np.float32)
    result: np.ndarray = (x - mean) * np.float32(CONTRAST_FACTOR[level - 1]) + mean
    return result


def brightness(x: np.ndarray, level: int, rng: Streams) -> np.ndarray:
    """HSV value plus a constant. Hue and saturation stay, so all three channels of a pixel scale alike."""
    value = x.max(1, keepdims=True)  # (n, 1, h, w)
    raised = np.minimum(value + np.float32(BRIGHTNESS_ADDED[level - 1]), 1)
    result: np.ndarray = np.where(value > 0, x * raised / np.maximum(value, 1e-9), raised)
    return result


def saturate(x: np.ndarray, level: int, rng: Streams) -> np.ndarray:
    """HSV saturation times a plus b. Value and hue stay, so each channel's distance to the value scales alike."""
    a, b = SATURATE[level - 1]
    value, low = x.max(1, keepdims=True), x.min(1, keepdims=True)
    old = (value - low) / np.maximum(value, 1e-9)
    new = np.minimum(old * a + b, 1)
    red = np.array([0, 1, 1], np.float32).reshape(1, 3, 1, 1)  # a grey pixel's hue is 0: red
    result: np.ndarray = np.where(old > 0, value - (value - x) * new / np.maximum(old, 1e-9), value * (1 - new * red))
    return result


def jpeg(x: np.ndarray, level: int, rng: Streams) -> np.ndarray:
    return _each(x, lambda image: compressed(image, JPEG_QUALITY[level - 1]))


def pixelate(x: np.ndarray, level: int, rng: Streams) -> np.ndarray:
    """Shrink and enlarge again, each with a box filter."""
    from PIL import Image

    h, w = x.shape[2:]
    scale = PIXELATE_SCALE[level - 1]
    small = int(w * scale), int(h * scale)

    def one(image: np.ndarray) -> np.ndarray:
        box = Image.Resampling.BOX
        return np.asarray(Image.fromarray(image).resize(small, box).resize((w, h), box))

    return _each(x, one)


def elastic(x: np.ndarray, level: int, rng: Streams) -> np.ndarray:
    """A random affine map, then a random smooth shift of each pixel."""
    from scipy import ndimage

    h, w = x.shape[2:]
    size = min(h, w)
    alpha, sigma, jitter = (size * c for c in ELASTIC[level - 1])
    x = _affine(x, rng.uniform(-jitter, jitter, 3, 2))
    shift = ndimage.gaussian_filter(rng.uniform(-1, 1, 2, h, w), (0, 0, sigma, sigma), mode="reflect", truncate=3)
    rows, cols = np.indices((h, w))
    return sample(x, rows + alpha * shift[:, 0], cols + alpha * shift[:, 1], "symmetric")


def compressed(image: np.ndarray, quality: int) -> np.ndarray:
    """One uint8 image (h, w, 3) or (h, w), through JPEG."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file))


def _affine(x: np.ndarray, jitter: np.ndarray) -> np.ndarray:
    """Moves three corners of a square about the centre by `jitter` (n, 3, 2), and the image with them."""
    h, w = x.shape[2:]
    reach = min(h, w) // 3
    centre = np.array([w // 2, h // 2])
    corners = centre + reach * np.array([[1, 1], [1, -1], [-1, -1]])  # (3, 2): column, row
    moved = np.concatenate([corners + jitter.astype(np.float64), np.ones((len(x), 3, 1))], 2)  # (n, 3, 3)
    back = np.linalg.solve(moved, np.broadcast_to(corners, (len(x), 3, 2)))  # (n, 3, 2): from new place to old
    rows, cols = np.indices((h, w))
    at = cols[..., None] * back[:, None, None, 0] + rows[..., None] * back[:, None, None, 1] + back[:, None, None, 2]
    return sample(x, at[..., 1], at[..., 0], "mirror")


def _each(x: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """`function` of each image as uint8 (h, w, 3), put together again."""
    images = np.rint(x * 255).astype(np.uint8).transpose(0, 2, 3, 1)
    done = np.stack([function(np.ascontiguousarray(image)) for image in images])
    return done.transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255)
