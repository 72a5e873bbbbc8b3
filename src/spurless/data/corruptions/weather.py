"""Snow, frost, fog and spatter. Arrays are float32 0..1 (n, 3, h, w)."""

from functools import cache

import numpy as np

from spurless.data.corruptions.blur import move
from spurless.data.corruptions.resample import clipped_zoom
from spurless.data.corruptions.streams import Streams

# mean, standard deviation, zoom, threshold, blur radius, blur sigma, share of the image
SNOW = (
    (0.1, 0.2, 1.0, 0.6, 8, 3.0, 0.95),
    (0.1, 0.2, 1.0, 0.5, 10, 4.0, 0.9),
    (0.15, 0.3, 1.75, 0.55, 10, 4.0, 0.9),
    (0.25, 0.3, 2.25, 0.6, 12, 6.0, 0.85),
    (0.3, 0.3, 1.25, 0.65, 14, 12.0, 0.8),
)
FROST = ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))  # share of the image, of the frost
FOG = ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))  # strength, smoothness
# mean, standard deviation, sigma, threshold, strength, mud instead of water
SPATTER = (
    (0.62, 0.1, 0.7, 0.7, 0.5, False),
    (0.65, 0.1, 0.8, 0.7, 0.5, False),
    (0.65, 0.3, 1.0, 0.69, 0.5, False),
    (0.65, 0.1, 0.7, 0.69, 0.6, True),
    (0.65, 0.1, 0.5, 0.68, 0.6, True),
)
WATER = np.array([175, 238, 238], np.float32).reshape(1, 3, 1, 1) / 255
MUD = np.array([63, 42, 20], np.float32).reshape(1, 3, 1, 1) / 255
GREY = np.array([0.299, 0.587, 0.114], np.float32).reshape(1, 3, 1, 1)
SHEETS, SHEET = 5, 256  # frost textures and their side in pixels


def snow(x: np.ndarray, level: int, rng: Streams) -> np.ndarray:
    """Flakes with a wind-blown tail, and their rotation by 180 degrees, over a whitened image."""
    mean, std, zoom, threshold, radius, sigma, share = SNOW[level - 1]
    flakes = clipped_zoom(mean + std * rng.normal(1, *x.shape[2:]), zoom)  # (n, 1, h, w)
    flakes = np.where(flakes < threshold, np.float32(0), flakes).clip(0, 1)
    flakes = move(flakes, rng.uniform(-135, -45), radius, sigma)
    whitened = np.maximum(x, (x * GREY).sum(1, keepdims=True) * 1.5 + 0.5)
    result: np.ndarray = share * x + (1 - share) * whitened + flakes + flakes[:, :, ::-1, ::-1]
    return result


def frost(x: np.ndarray, level: int, rng: Streams) -> np.ndarray:
    """A weighted sum with a random piece of a frost texture. The texture is procedural, not a photograph."""
    image_share, frost_share = FROST[level - 1]
    h, w = x.shape[2:]
    sheet = rng.integers(SHEETS)[:, None, None]  # (n, 1, 1)
    top, left = rng.integers(SHEET, 2).T[..., None, None]  # (n, 1, 1) each
    rows, cols = np.indices((h, w))
    piece = frost_sheets()[sheet, :, (top + rows) % SHEET, (left + cols) % SHEET]  # (n, h, w, 3)
    return image_share * x + frost_share * piece.transpose(0, 3, 1, 2)


def fog(x: np.ndarray, level: int, rng: Streams) -> np.ndarray:
    """Plasma clouds added, and the whole darkened again to the old peak."""
    strength, decay = FOG[level - 1]
    h, w = x.shape[2:]
    size = 1 << (max(h, w) - 1).bit_length()
    peak = x.max((1, 2, 3), keepdims=True)
    result: np.ndarray = (x + strength * plasma(rng, size, decay)[:, None, :h, :w]) * peak / (peak + strength)
    return result


def spatter(x: np.ndarray, level: int, rng: Streams) -> np.ndarray:
    """Splashes of water (levels 1 to 3) or mud (4 and 5)."""
    from scipy import ndimage

    mean, std, sigma, threshold, strength, mud = SPATTER[level - 1]
    noise = mean + std * rng.normal(*x.shape[2:])
    liquid = ndimage.gaussian_filter(noise, (0, sigma, sigma), mode="nearest", truncate=4)  # (n, h, w)
    if mud:
        cover = (liquid > threshold).astype(np.float32)
        cover = ndimage.gaussian_filter(cover, (0, strength, strength), mode="nearest", truncate=4)
        cover = np.where(cover < 0.8, np.float32(0), cover)[:, None]
        muddy: np.ndarray = x * (1 - cover) + MUD * cover
        return muddy
    liquid = (np.where(liquid < threshold, 0, liquid) * 255).astype(np.uint8)
    shine = liquid * _relief(liquid)
    peak = shine.max((1, 2), keepdims=True)
    result: np.ndarray = x + strength * (shine / np.maximum(peak, 1))[:, None].astype(np.float32) * WATER
    return result


def plasma(rng: Streams, size: int, decay: float) -> np.ndarray:
    """(n, size, size) fractal clouds from 0 to 1, by the diamond-square rule on a torus; size is a power of two."""
    cloud = np.zeros((len(rng), size, size))
    step, wobble = size, 100.0

    def mean_of(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
        result: np.ndarray = (a + b + c + d) / 4 + wobble * rng.uniform(-wobble, wobble, *a.shape[1:])
        return result

    while step >= 2:
        half = step // 2
        corner = cloud[:, ::step, ::step]
        right = np.roll(corner, -1, 2)
        below = np.roll(corner, -1, 1)
        centre = mean_of(corner, right, below, np.roll(right, -1, 1))
        cloud[:, half::step, half::step] = centre
        cloud[:, ::step, half::step] = mean_of(centre, np.roll(centre, 1, 1), corner, right)
        cloud[:, half::step, ::step] = mean_of(centre, np.roll(centre, 1, 2), corner, below)
        step, wobble = half, wobble / decay
    cloud -= cloud.min((1, 2), keepdims=True)
    result: np.ndarray = (cloud / cloud.max((1, 2), keepdims=True)).astype(np.float32)
    return result


@cache
def frost_sheets() -> np.ndarray:
    """(5, 3, 256, 256) ice textures that tile: needles in a few directions, grown where a slow cloud is dense.

    They stand in for the photographs of the original; like those they are the same for every seed.
    """
    rng = np.random.default_rng(20190504)
    row, col = np.meshgrid(np.fft.fftfreq(SHEET), np.fft.fftfreq(SHEET), indexing="ij")
    radius = np.hypot(row, col)

    def field(spectrum: np.ndarray) -> np.ndarray:
        """White noise through this filter, with mean 0 and standard deviation 1."""
        out = np.fft.ifft2(np.fft.fft2(rng.standard_normal((SHEET, SHEET))) * spectrum).real
        result: np.ndarray = (out - out.mean()) / out.std()
        return result

    sheets = []
    for _ in range(SHEETS):
        cloud = field(1 / (0.02 + radius) ** 2)
        needles = np.full((SHEET, SHEET), -np.inf)
        turn = rng.uniform(0, np.pi)
        for angle in turn + np.pi * np.arange(5) / 5:
            along, across = row * np.sin(angle) + col * np.cos(angle), row * np.cos(angle) - col * np.sin(angle)
            streak = field(np.exp(-((along / 0.03) ** 2) - (across / 0.25) ** 2))
            needles = np.maximum(needles, streak + 0.8 * field(1 / (0.03 + radius) ** 2))
        ice = 0.5 + 0.16 * cloud + 0.17 * (needles - needles.mean()) + 0.04 * field(np.ones_like(radius))
        sheets.append(ice.clip(0, 1)[None] * np.array([0.9, 0.96, 1.0]).reshape(3, 1, 1))
    return np.stack(sheets).astype(np.float32)


def _relief(liquid: np.ndarray) -> np.ndarray:
    """(n, h, w): how the edges of the drops in a uint8 layer catch the light, 0 to 255."""
    from scipy import ndimage

    # One image of nothing but background goes first, so that there is a background even where no image has an edge;
    # the images lie far apart, so that none of them sees another's edges.
    blank = np.zeros((1, *liquid.shape[1:]), bool)
    apart = ndimage.distance_transform_edt(np.concatenate([blank, ~_edges(liquid)]), sampling=(1000, 1, 1))
    depth = np.minimum(apart[1:], 20)
    depth = _equalised(ndimage.uniform_filter(depth, (1, 3, 3), mode="mirror").astype(np.uint8))
    light = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])  # from the upper left
    lit = ndimage.correlate(depth.astype(np.float64), light[None], mode="mirror").clip(0, 255)
    result: np.ndarray = np.rint(ndimage.uniform_filter(lit, (1, 3, 3), mode="mirror"))
    return result


def _equalised(x: np.ndarray) -> np.ndarray:
    """Histogram equalisation of each uint8 image (n, h, w): its darkest value becomes 0, its brightest 255."""
    n, pixels = len(x), x[0].size
    flat = x.reshape(n, pixels).astype(np.int64)
    count = np.bincount((flat + 256 * np.arange(n)[:, None]).ravel(), minlength=256 * n).reshape(n, 256)
    below = count.cumsum(1)
    darkest = np.take_along_axis(count, flat.min(1, keepdims=True), 1)  # (n, 1): how many pixels have that value
    table = np.rint((below - darkest) * 255 / np.maximum(pixels - darkest, 1))
    table = np.where(darkest == pixels, np.arange(256), table)  # one value only: nothing to spread
    return np.take_along_axis(table, flat, 1).reshape(x.shape)


def _edges(x: np.ndarray, low: int = 50, high: int = 150) -> np.ndarray:
    """Canny's edges of uint8 images (n, h, w): ridges of the gradient above `low` that touch one above `high`."""
    from scipy import ndimage

    sobel = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    right = ndimage.correlate(x.astype(np.int32), sobel[None], mode="nearest")
    down = ndimage.correlate(x.astype(np.int32), sobel.T[None], mode="nearest")
    size = np.abs(right) + np.abs(down)
    padded = np.pad(size, ((0, 0), (1, 1), (1, 1)))
    h, w = x.shape[1:]

    def beside(r: int, c: int) -> np.ndarray:
        return padded[:, 1 + r : 1 + r + h, 1 + c : 1 + c + w]

    slope = np.tan(np.pi / 8)
    flat = np.abs(down) < slope * np.abs(right)
    steep = np.abs(right) < slope * np.abs(down)
    falling = (right < 0) == (down < 0)  # the gradient points to the lower right or upper left
    ridge = np.where(
        flat,
        (size > beside(0, -1)) & (size >= beside(0, 1)),
        np.where(
            steep,
            (size > beside(-1, 0)) & (size >= beside(1, 0)),
            np.where(
                falling,
                (size > beside(-1, -1)) & (size > beside(1, 1)),
                (size > beside(-1, 1)) & (size > beside(1, -1)),
            ),
        ),
    )
    weak = ridge & (size > low)
    result: np.ndarray = ndimage.binary_propagation(weak & (size > high), np.ones((1, 3, 3), bool), mask=weak)
    return result
