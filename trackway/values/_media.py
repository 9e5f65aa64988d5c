"""Pictures and sound."""

from __future__ import annotations

import copy
import io
import struct
import zlib
from collections.abc import Callable
from typing import Any, final

import numpy as np

from trackway._notices import warn_once
from trackway.values._arrays import as_host, reject_tracer
from trackway.values._media_base import Media
from trackway.values._text import bounded_repr, type_name

__all__ = ["Audio", "Image"]

_GRAY, _RGB, _RGBA = 1, 3, 4
_PIL_STEPS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("L", "RGB", "RGBA", "F"), ()),
    **dict.fromkeys(("LA", "PA", "P", "RGBa"), ("RGBA",)),
    "La": ("LA", "RGBA"),
    "1": ("L",),
}
_COLOUR_TYPES = {_GRAY: 0, _RGB: 2, _RGBA: 6}
_MAX_CHANNELS = 32
_SAMPLE_BYTES = 2
_MAX_BYTE_RATE = 2**32 - 1  # what the header of a WAV file has room for


@final
class Image(Media):
    """A picture.

    Args:
        data: `[H, W]` or `[H, W, 1]` (grey), `[H, W, 3]` (RGB) or `[H, W, 4]` (RGBA); uint8, bool, or floats in
            [0, 1]; or a PIL image, one of mode "F" being floats. Floats outside are clipped and NaNs become 0, with
            one warning. The data is copied, and waited for if it is on a device.
        caption: A text to show with it; anything else becomes its text.

    Raises:
        ValueError: If shape or type are others, 16-bit and 32-bit PIL images included: their range is unknown.
        TracerError: If *data* is a traced JAX value.
    """

    __slots__ = ("caption", "clipped", "pixels")

    caption: str | None
    """The text to show with it."""
    clipped: int
    """How many float values were outside of [0, 1] or NaN."""
    pixels: np.ndarray[Any, np.dtype[np.uint8]]
    """`[H, W]`, `[H, W, 3]` or `[H, W, 4]`; read-only."""

    def __init__(self, data: Any, caption: str | None = None) -> None:
        array = _numbers(_from_pil(data), "Image")
        if array.ndim == 3 and array.shape[2] == _GRAY:  # noqa: PLR2004 - height, width, channels
            array = array[:, :, 0]
        if not _is_picture(array.shape):
            raise ValueError(
                f"Image: the shape must be [H, W], [H, W, 1], [H, W, 3] or [H, W, 4] without empty axes, got "
                f"{list(array.shape)}; move channels last with `numpy.moveaxis(x, 0, -1)`, log a batch one by one"
            )
        self.pixels, self.clipped = _to_bytes(array)
        self.pixels.flags.writeable = False
        self.caption = _caption(caption)

    @property
    def width(self) -> int:
        """Columns of pixels."""
        return int(self.pixels.shape[1])

    @property
    def height(self) -> int:
        """Rows of pixels."""
        return int(self.pixels.shape[0])

    @property
    def channels(self) -> int:
        """1 for grey, 3 for RGB, 4 for RGBA."""
        return 1 if self.pixels.ndim == 2 else int(self.pixels.shape[2])  # noqa: PLR2004

    def to_png(self) -> bytes:
        """Return it as a PNG file, 8 bits a channel."""
        header = struct.pack(">IIBBBBB", self.width, self.height, 8, _COLOUR_TYPES[self.channels], 0, 0, 0)
        lines = self.pixels.reshape(self.height, -1)
        unfiltered = np.zeros((self.height, 1), np.uint8)
        body = zlib.compress(np.concatenate([unfiltered, lines], axis=1).tobytes())
        return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")

    def describe(self) -> dict[str, Any]:
        """Return type, size and caption."""
        size = {"width": self.width, "height": self.height, "channels": self.channels}
        return {"_type": "image", **size, "caption": self.caption}

    def redacted(self, change: Callable[[str], str]) -> Image:
        """Return it with *change* made to its caption."""
        caption = None if self.caption is None else change(self.caption)
        if caption == self.caption:
            return self
        image = copy.copy(self)
        image.caption = caption
        return image

    def __repr__(self) -> str:
        return f"Image({self.width}x{self.height}, channels={self.channels}, caption={self.caption!r})"


@final
class Audio(Media):
    """A sound.

    Args:
        data: `[T]` or `[T, C]`, with up to 32 channels; floats in [-1, 1], or int16, int32 or uint8 over their whole
            range. Floats outside are clipped and NaNs become 0, with one warning. The data is copied.
        sample_rate: Samples per second of one channel, at least 1; for all channels together below 2**31.
        caption: A text to show with it; anything else becomes its text.

    Raises:
        ValueError: If shape, type or rate are others.
        TracerError: If *data* is a traced JAX value.
    """

    __slots__ = ("caption", "clipped", "sample_rate", "samples")

    caption: str | None
    """The text to show with it."""
    clipped: int
    """How many float values were outside of [-1, 1] or NaN."""
    sample_rate: int
    """Samples per second of one channel."""
    samples: np.ndarray[Any, np.dtype[np.int16]]
    """`[T, C]`; read-only."""

    def __init__(self, data: Any, sample_rate: int, caption: str | None = None) -> None:
        array = _numbers(data, "Audio")
        if array.ndim == 1:
            array = array[:, None]
        if array.ndim != 2 or not 1 <= array.shape[1] <= _MAX_CHANNELS:  # noqa: PLR2004 - time, channels
            raise ValueError(
                f"Audio: the shape must be [T] or [T, C] with up to {_MAX_CHANNELS} channels, got {list(array.shape)}; "
                "transpose data whose channels come first"
            )
        self.sample_rate = _checked_rate(sample_rate, array.shape[1])
        self.samples, self.clipped = _to_samples(array)
        self.samples.flags.writeable = False
        self.caption = _caption(caption)

    @property
    def seconds(self) -> float:
        """How long it plays."""
        return len(self.samples) / self.sample_rate

    def to_wav(self) -> bytes:
        """Return it as a WAV file, 16 bits a sample."""
        import wave

        buffer = io.BytesIO()
        with wave.open(buffer, "wb") as file:
            file.setnchannels(self.samples.shape[1])
            file.setsampwidth(_SAMPLE_BYTES)
            file.setframerate(self.sample_rate)
            file.writeframes(self.samples.astype("<i2").tobytes())
        return buffer.getvalue()

    def describe(self) -> dict[str, Any]:
        """Return type, size and caption."""
        size = {"sample_rate": self.sample_rate, "channels": int(self.samples.shape[1]), "seconds": self.seconds}
        return {"_type": "audio", **size, "caption": self.caption}

    def __repr__(self) -> str:
        return f"Audio({self.seconds:.6g} s, sample_rate={self.sample_rate}, caption={self.caption!r})"


def _caption(caption: Any) -> str | None:
    if caption is None:
        return None
    try:
        return str.__str__(str(caption))
    except Exception:
        return bounded_repr(caption)


def _checked_rate(rate: Any, channels: int) -> int:
    most = _MAX_BYTE_RATE // (_SAMPLE_BYTES * channels)
    if isinstance(rate, bool) or not isinstance(rate, int | np.integer) or not 1 <= rate <= most:
        raise ValueError(
            f"Audio: sample_rate must be a whole number of samples per second, 1 to {most} for {channels} channels, "
            f"got {bounded_repr(rate)}"
        )
    return int(rate)


def _numbers(data: Any, what: str) -> np.ndarray[Any, np.dtype[Any]]:
    reject_tracer(data, what, wrapping=True)
    try:
        return as_host(data)
    except Exception as error:
        raise ValueError(f"{what}: an array is expected, got {type_name(data)}: {bounded_repr(data)}") from error


def _from_pil(data: Any) -> Any:
    """Return the array of a PIL image, which is known by its `mode` and `convert`; other values as they are."""
    mode, convert = getattr(data, "mode", None), getattr(data, "convert", None)
    if not isinstance(mode, str) or not callable(convert):
        return data
    if mode.startswith("I"):
        raise ValueError(
            f"Image: the range of a PIL image of mode {mode!r} is unknown; scale it to floats in [0, 1], as in "
            "`numpy.asarray(image) / 65535` for 16 bits"
        )
    for target in _PIL_STEPS.get(mode, ("RGB",)):
        data = data.convert(target)
    return np.asarray(data)


def _is_picture(shape: tuple[int, ...]) -> bool:
    channels_fit = len(shape) == 2 or (len(shape) == 3 and shape[2] in {_RGB, _RGBA})  # noqa: PLR2004
    return channels_fit and 0 not in shape


def _to_bytes(array: np.ndarray[Any, np.dtype[Any]]) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], int]:
    if array.dtype == np.uint8:
        return array.copy(), 0
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255), 0
    if array.dtype.kind not in "fV":
        raise ValueError(
            f"Image: the type must be uint8, bool or floats in [0, 1], got {array.dtype}; "
            "for numbers from 0 to 255 use `x.astype(numpy.uint8)`"
        )
    scaled, clipped = _clip(array, 0.0, 1.0, "Image")
    return np.rint(scaled * 255).astype(np.uint8), clipped


def _to_samples(array: np.ndarray[Any, np.dtype[Any]]) -> tuple[np.ndarray[Any, np.dtype[np.int16]], int]:
    if array.dtype == np.int16:
        return array.copy(), 0
    if array.dtype == np.int32:
        return (array >> 16).astype(np.int16), 0
    if array.dtype == np.uint8:
        return (array.astype(np.int16) - 128) << 8, 0
    if array.dtype.kind not in "fV":
        raise ValueError(f"Audio: the type must be floats in [-1, 1], int16, int32 or uint8, got {array.dtype}")
    scaled, clipped = _clip(array, -1.0, 1.0, "Audio")
    return np.rint(scaled * 32767).astype(np.int16), clipped


def _clip(
    array: np.ndarray[Any, np.dtype[Any]], low: float, high: float, what: str
) -> tuple[np.ndarray[Any, np.dtype[np.float64]], int]:
    values = array.astype(np.float64)
    outside = int(np.count_nonzero(~((values >= low) & (values <= high))))
    if outside:
        warn_once(
            ("clip", what),
            f"{what}: {outside} of {values.size} values are outside of [{low:g}, {high:g}] or NaN; they are clipped "
            "(NaN becomes 0). Scale the data, or clip it yourself, to silence this.",
        )
    return np.clip(np.nan_to_num(values, nan=0.0, posinf=high, neginf=low), low, high), outside


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
