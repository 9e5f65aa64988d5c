"""Writing plain values as YAML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trackway.values import encode

__all__ = ["dump"]


def dump(values: Mapping[str, Any]) -> str:
    """Return normalised *values* as YAML, keys in their order.

    What PyYAML refuses (integers of thousands of digits, lone surrogates) is written as JSON, which is YAML too.
    """
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # sixty times faster; missing where libyaml was

    try:
        text: str = yaml.dump(_plain(values), Dumper=dumper, sort_keys=False, allow_unicode=True, width=1000)
        text.encode("utf-8")
    except (yaml.YAMLError, ValueError):
        return encode(values).decode("utf-8") + "\n"
    return text


def _plain(value: Any) -> Any:
    """Copies without sharing, which PyYAML would write as anchors, and without subclasses, which it refuses."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
