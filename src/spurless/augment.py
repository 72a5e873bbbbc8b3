"""Augmentation of a whole batch on its device, each sample with its own random numbers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Augment:
    """What is drawn for each sample. Zero or False leaves a step out."""

    scale: tuple[float, float] = (1.0, 1.0)  # random resized crop: share of the area that is kept
    ratio: tuple[float, float] = (1.0, 1.0)  # random resized crop: aspect ratio
    pad: int = 0  # padded crop: shift by up to this many whole pixels, zeros outside
    flip: bool = False  # mirror left to right, half of the time
    rotate: float = 0.0  # degrees to either side
    brightness: float = 0.0  # factor drawn from 1 - v to 1 + v
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0  # share of the colour circle to either side, at most 0.5


PRESETS: dict[str, Augment] = {"none": Augment()}
