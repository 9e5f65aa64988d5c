"""From logged values to the protocol buffers that TensorBoard shows."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterator
from typing import Any, final

from trackway import _notices
from trackway.backends._tensorboard_scalars import EXACT, GREATEST, LEAST, ScalarEvents
from trackway.backends._tensorboard_tags import Tags, valid_text
from trackway.tracker import Ledger
from trackway.values import Audio, Downgrade, Histogram, Html, Image, Row, Table, Text, encode, flatten

__all__ = ["Summaries", "json_text", "plugin_value", "to_float32"]

_MEDIA = (Image, Audio, Table, Text, Html, Histogram)


@final
class Summaries:
    """Makes the values of one event of each row; counts in *ledger* what it has to convert or drop. Thread-safe."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._tags = Tags(ledger)
        self._scalars = ScalarEvents(self._tags)
        self._makers: dict[type, Callable[[str, Any], Iterator[Any]]] = {
            float: self._scalar,
            int: self._scalar,
            bool: self._scalar,
            str: self._string,
            list: self._list,
            dict: self._json,
            Histogram: self._histogram,
            Image: self._image,
            Audio: self._audio,
            Text: lambda name, value: self.text(name, value.text),
            Table: lambda name, value: self.text(name, value.to_markdown()),
            Html: self._html,
        }

    def event(self, row: Row, step: int, time: float) -> bytes | None:
        """Return the serialised event of a *row* of ordinary numbers, at a *step* and *time*; None for other rows."""
        return None if row.downgrades else self._scalars.of(row, step, time)

    def values(self, row: Row, prefix: str = "") -> list[Any]:
        """Return the `Summary.Value`s of *row*, whose names get *prefix* put before them."""
        if row.downgrades:
            self._ledger.count_downgrades(row)
        values: list[Any] = []
        lost: list[Downgrade] = []
        plain, tag = _value(), self._tags.tag
        for name, value in flatten(row, lost).items():
            if type(value) is float and (value == 0.0 or LEAST < abs(value) < GREATEST):  # as nearly all are
                values.append(plain(tag=tag(prefix + name, "scalar"), simple_value=value))
            else:
                values += self._made(prefix + name, value)
        for path, reason, _ in lost:
            self._ledger.drop(path, reason)
        return values

    def _made(self, name: str, value: Any) -> list[Any]:
        if value is None:
            self._ledger.drop(name, "None is neither a number nor a text")
            return []
        try:
            return list(self._makers.get(type(value), self._json)(name, value))
        except Exception as error:  # one bad value must not cost its neighbours
            kind = type(value).__name__
            self._ledger.drop(name, f"{kind} cannot be written")
            key = ("tensorboard", name, type(error))
            _notices.log_once(key, f"tensorboard: {name}: {kind} cannot be written: {error!r}", error)
            return []

    def _scalar(self, name: str, value: float) -> Iterator[Any]:
        number, reason = to_float32(value)
        if reason:
            self._ledger.convert(name, reason)
        yield _value()(tag=self._tags.tag(name, "scalar"), simple_value=number)

    def text(self, name: str, text: str) -> Iterator[Any]:
        """Yield the value of a text, which the text dashboard shows as Markdown."""
        from tensorboardX.proto.plugin_text_pb2 import TextPluginData
        from tensorboardX.proto.tensor_pb2 import TensorProto
        from tensorboardX.proto.tensor_shape_pb2 import TensorShapeProto

        valid = valid_text(text)
        if valid != text:
            self._ledger.convert(name, "lone surrogates in a text are escaped")
        shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
        tensor = TensorProto(dtype="DT_STRING", string_val=[valid.encode("utf-8")], tensor_shape=shape)
        value = plugin_value(self._tags.tag(name, "text"), "text", TextPluginData(version=0))
        value.tensor.CopyFrom(tensor)
        yield value

    def _string(self, name: str, value: str) -> Iterator[Any]:
        return self.text(name, value)

    def _html(self, name: str, value: Html) -> Iterator[Any]:
        self._ledger.convert(name, "HTML is shown as a text")
        return self.text(name, value.html)

    def _list(self, name: str, value: list[Any]) -> Iterator[Any]:
        if value and all(isinstance(item, _MEDIA) for item in value):
            for number, item in enumerate(value):
                yield from self._makers[type(item)](f"{name}/{number}", item)
        else:
            yield from self._json(name, value)

    def _json(self, name: str, value: Any) -> Iterator[Any]:
        self._ledger.convert(name, "lists and other structures become JSON texts")
        return self.text(name, json_text(value))

    def _histogram(self, name: str, value: Histogram) -> Iterator[Any]:
        from tensorboardX.proto.summary_pb2 import HistogramProto, Summary

        host = value.to_host()
        for part in ("nan", "posinf", "neginf"):
            if getattr(host, part):
                self._ledger.convert(name, "non-finite values of a histogram become counts beside it")
                yield from self._scalar(f"{name}/{part}", getattr(host, part))
        if not host.num:
            self._ledger.convert(name, "an empty histogram becomes its number of values, 0")
            yield from self._scalar(f"{name}/num", 0)
            return
        least, greatest = self._borders(name, host)
        proto = HistogramProto(
            min=least,
            max=greatest,
            num=host.num,
            sum=host.sum,
            sum_squares=host.sum_squares,
            bucket_limit=list(map(float, host.edges[1:])),
            bucket=list(map(float, host.counts)),
        )
        yield Summary.Value(tag=self._tags.tag(name, "histogram"), histo=proto)

    def _borders(self, name: str, host: Histogram) -> tuple[float, float]:
        """Return minimum and maximum: TensorBoard draws the outermost buckets that are not empty as far as these."""
        if host.counts.sum() == host.num:
            return host.min, host.max
        self._ledger.convert(name, "values outside of a histogram's edges count in its sums only")
        filled = host.counts.nonzero()[0]
        first, last = (filled[0], filled[-1]) if filled.size else (0, len(host.counts) - 1)
        low, high = float(host.edges[first]), float(host.edges[last + 1])
        return min(max(host.min, low), high), max(min(host.max, high), low)

    def _image(self, name: str, value: Image) -> Iterator[Any]:
        from tensorboardX.proto.summary_pb2 import Summary

        image = Summary.Image(
            height=value.height, width=value.width, colorspace=value.channels, encoded_image_string=value.to_png()
        )
        yield Summary.Value(tag=self._tags.tag(name, "image"), image=image)
        yield from self._caption(name, value)

    def _audio(self, name: str, value: Audio) -> Iterator[Any]:
        from tensorboardX.proto.summary_pb2 import Summary

        audio = Summary.Audio(
            sample_rate=value.sample_rate,
            num_channels=value.samples.shape[1],
            length_frames=len(value.samples),
            encoded_audio_string=value.to_wav(),
            content_type="audio/wav",
        )
        yield Summary.Value(tag=self._tags.tag(name, "audio"), audio=audio)
        yield from self._caption(name, value)

    def _caption(self, name: str, value: Image | Audio) -> Iterator[Any]:
        if value.clipped:
            self._ledger.convert(name, f"values of an {type(value).__name__} outside its range are clipped")
        if value.caption:
            yield from self.text(f"{name}/caption", str(value.caption))


@functools.cache
def _value() -> Any:
    """The class of a value; asked for more often than an import statement is quick."""
    from tensorboardX.proto.summary_pb2 import Summary

    return Summary.Value


def plugin_value(tag: str, plugin: str, content: Any) -> Any:
    """Return a `Summary.Value` that belongs to *plugin*, with the message *content* as the plugin's own data."""
    from tensorboardX.proto.summary_pb2 import Summary, SummaryMetadata

    data = SummaryMetadata.PluginData(plugin_name=plugin, content=content.SerializeToString())
    return Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=data))


def to_float32(value: float) -> tuple[float, str]:
    """Return *value* as the number that is written, and what it lost beyond a float's ordinary rounding, if anything.

    >>> to_float32(10**5000)
    (inf, 'beyond the range of float32: becomes infinity')
    """
    if isinstance(value, bool):
        return float(value), "true and false become 1 and 0"
    if isinstance(value, int) and not -EXACT <= value <= EXACT:
        return _large_int(value)
    number = float(value)
    if math.isfinite(number) and abs(number) >= GREATEST:
        return math.copysign(math.inf, number), "beyond the range of float32: becomes infinity"
    if 0 < abs(number) <= LEAST:
        return math.copysign(0.0, number), "smaller than float32 can hold: becomes 0"
    return number, ""


def _large_int(value: int) -> tuple[float, str]:
    from struct import pack, unpack

    try:
        number: float = unpack("f", pack("f", float(value)))[0]
    except OverflowError:
        return math.copysign(math.inf, 1 if value > 0 else -1), "beyond the range of float32: becomes infinity"
    return number, "" if number == value else "integers beyond 2**24 are rounded to float32"


def json_text(value: Any) -> str:
    """Return *value* as JSON; NaN and the infinities as the literals that Python's `json` reads."""
    try:
        return json.dumps(value, ensure_ascii=False, default=lambda item: item.describe())
    except (ValueError, AttributeError):  # an integer of thousands of digits, which only the own encoder writes
        return encode({"value": value}).decode("utf-8", "replace")
