"""Making draccus use the decoders and encoders of this package."""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Callable
from typing import Any, Union

import draccus
from draccus.parsers import decoding

from trackway.config._base import TrackerConfig
from trackway.config._decode import (
    decode_background,
    decode_config,
    decode_optional_config,
    decode_optional_trackers,
    decode_optional_tracking,
    decode_print,
    decode_trackers,
    decode_tracking,
)
from trackway.config._encode import encode_config, encode_trackers, encode_tracking
from trackway.config._trackers import Trackers
from trackway.config._tracking import TrackingConfig
from trackway.tracker import BackgroundPolicy

__all__ = ["teach_draccus"]


def teach_draccus() -> None:
    """Register everything; called once, when `trackway.config` is imported.

    `include_subclasses` is set throughout since draccus gives null to no other decoder.
    """
    draccus.decode.register(Trackers, decode_trackers, include_subclasses=True)
    draccus.decode.register(Union[Trackers, None], decode_optional_trackers, include_subclasses=True)  # noqa: UP007 - draccus looks this form up
    draccus.decode.register(Union[bool, BackgroundPolicy], decode_background, include_subclasses=True)  # noqa: UP007
    draccus.decode.register(Union[bool, Callable[[str], Any]], decode_print, include_subclasses=True)  # noqa: UP007
    draccus.encode.register(Trackers, encode_trackers, include_subclasses=True)
    draccus.encode.register(TrackingConfig, encode_tracking, include_subclasses=True)
    draccus.encode.register(TrackerConfig, encode_config, include_subclasses=True)
    _decode_configs_ourselves()


def _decode_configs_ourselves() -> None:
    """Have draccus decode tracker configs with `decode_config`, and a run's tracking with `decode_tracking`.

    Decoders registered for these classes would do, but draccus then takes the field for a single value and offers
    neither `--tracker.type` nor `--tracking.run_id` on the command line. This is the one place where it asks for a
    decoder only.
    """
    original: Callable[[Any], Callable[..., Any]] = decoding.get_decoding_fn

    @functools.wraps(original)
    def get_decoding_fn(cls: Any) -> Callable[..., Any]:
        wanted, optional = _without_none(cls)
        if wanted is TrackingConfig:
            return functools.partial(decode_optional_tracking if optional else decode_tracking, wanted)
        if not (isinstance(wanted, type) and issubclass(wanted, TrackerConfig)):
            return original(cls)
        return functools.partial(decode_optional_config if optional else decode_config, wanted)

    # what functools.lru_cache adds, for whoever clears the cache
    get_decoding_fn.cache_clear = original.cache_clear  # type: ignore[attr-defined]
    get_decoding_fn.cache_info = original.cache_info  # type: ignore[attr-defined]
    decoding.get_decoding_fn = get_decoding_fn  # type: ignore[assignment]  # as callable, and as cached, as before


def _without_none(hint: Any) -> tuple[Any, bool]:
    """`X` and True for `X | None`, and for anything else itself and False."""
    if typing.get_origin(hint) not in {Union, types.UnionType}:
        return hint, False
    options = [option for option in typing.get_args(hint) if option is not type(None)]
    return (options[0], True) if len(options) == 1 else (hint, False)
