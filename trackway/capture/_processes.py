"""One number out of those of all processes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from trackway.errors import ConfigError, TracerError
from trackway.tracker import _process
from trackway.values import flatten, normalise, resolve

__all__ = ["How", "reduce_across_processes"]

How: TypeAlias = Literal["mean", "sum", "max", "min"]
"""What is made of the values that the processes have for one name."""

_REDUCTIONS: dict[str, Callable[..., Any]] = {"mean": np.mean, "sum": np.sum, "max": np.max, "min": np.min}
_ME = "reduce_across_processes"
_SHORTEST = 256  # bytes; lengths are powers of two, so that few programs are compiled
_FEW = 5


class _Part(NamedTuple):
    """What one process gives: its numbers by name, and what is wrong with them."""

    numbers: dict[str, float]
    how: dict[str, str]
    error: tuple[str, str] | None = None


def reduce_across_processes(metrics: Mapping[str, Any], how: How | Mapping[str, How] = "mean") -> dict[str, float]:
    """Return one number for each metric, made of what all processes of the job have for it; the same in all of them.

    ```python
    seconds = time.perf_counter() - started
    trackway.log(trackway.reduce_across_processes({"seconds": seconds}, how="max"), step=step)
    ```

    Every process has to call it, in the same order as JAX's other collectives, with metrics of the same names. It
    waits for the values and for the other processes: call it every so many steps, not in each. Numbers are kept as
    float64 all the way; NaN makes the result NaN. With one process it returns the metrics as floats.

    Args:
        metrics: Names to single numbers: of Python, or arrays of one element that this process can read. Nested names
            are joined by `/`.
        how: "mean", "sum", "max" or "min", for all metrics or by name; names that a mapping leaves out get the mean.
            For a weighted mean, divide the sums of value times weight and of the weight.

    Returns:
        A new dict, in the order of *metrics*.

    Raises:
        ValueError: in every process, if names or *how* differ between them, *how* names no reduction, or a metric that
            is not there.
        TypeError: in every process, if a value in one of them is not a single number.
        TracerError: inside compiled code, where `jax.lax.pmean` and its like do it.
        ConfigError: if there are several processes, and `jax.distributed` is not initialised.
    """
    mine = _part_of(metrics, how)
    if not _several():
        _raise_if_wrong([mine])
        return mine.numbers
    parts = [_unpacked(text) for text in _exchanged(_packed(mine))]
    _raise_if_wrong(parts)
    with np.errstate(all="ignore"):
        return {
            name: float(_REDUCTIONS[mine.how[name]]([part.numbers[name] for part in parts])) for name in mine.numbers
        }


def _several() -> bool:
    """Whether there are other processes; raises `ConfigError` if there are and JAX does not know them."""
    jax = sys.modules.get("jax")
    if jax is not None and jax.process_count() > 1:
        _process.compare()
        return True
    place = _process.job()
    if place.several:
        raise ConfigError(
            f"{_ME}: this process is {place}, by {place.source}, and JAX knows of no other; call "
            "jax.distributed.initialize() first"
        )
    return False


def _part_of(metrics: Mapping[str, Any], how: Any) -> _Part:
    """What this process has to give; what is wrong is told to the others, who would wait for it otherwise."""
    try:
        numbers = _numbers(metrics)
        return _Part(numbers, _choices(how, numbers))
    except TracerError:
        raise
    except Exception as error:
        return _Part({}, {}, (type(error).__name__, str(error)[:1000]))


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    row = resolve(normalise(metrics, warn=False))
    for path, reason, _ in row.downgrades:
        raise TypeError(f"{_ME}: metric {path!r} {reason}")
    numbers = flatten(row)
    for name, value in numbers.items():
        if not isinstance(value, int | float):
            what = "an array of several elements" if isinstance(value, list) else type(value).__name__
            raise TypeError(f"{_ME}: metric {name!r} must be a single number, got {what}")
    return {name: float(value) for name, value in numbers.items()}


def _choices(how: Any, names: Mapping[str, Any]) -> dict[str, str]:
    chosen = dict(how) if isinstance(how, Mapping) else dict.fromkeys(names, how)
    for name, choice in chosen.items():
        if not isinstance(choice, str) or choice not in _REDUCTIONS:
            raise ValueError(f"{_ME}: how must be one of {', '.join(_REDUCTIONS)}, got {choice!r} for {name!r}")
        if name not in names:
            raise ValueError(f"{_ME}: how has {name!r}, which is none of the metrics {', '.join(names)}")
    return {name: chosen.get(name, "mean") for name in names}


def _packed(part: _Part) -> bytes:
    return json.dumps(part).encode()


def _unpacked(text: bytes) -> _Part:
    numbers, how, error = json.loads(text)
    return _Part(numbers, how, None if error is None else (error[0], error[1]))


def _exchanged(text: bytes) -> list[bytes]:
    """Return the *text* of every process, by rank of JAX.

    Lengths first: a collective has one shape everywhere, whatever the processes have to say.
    """
    from jax.experimental.multihost_utils import process_allgather

    lengths = np.asarray(process_allgather(np.asarray([len(text)], np.int32))).reshape(-1)
    room = max(_SHORTEST, 1 << (int(lengths.max()) - 1).bit_length())
    padded = np.frombuffer(text.ljust(room), np.uint32)
    texts = np.asarray(process_allgather(padded)).reshape(len(lengths), -1)
    return [row.tobytes()[:length] for row, length in zip(texts, lengths, strict=True)]


def _raise_if_wrong(parts: Sequence[_Part]) -> None:
    """Raise the same error in every process."""
    for rank, part in enumerate(parts):
        if part.error is not None:
            kind, message = part.error
            where = f" (in process {rank})" if len(parts) > 1 else ""
            raise (TypeError if kind == "TypeError" else ValueError)(f"{message}{where}")
    for rank, part in enumerate(parts[1:], start=1):
        lacks, adds = sorted(parts[0].how.keys() - part.how), sorted(part.how.keys() - parts[0].how)
        if lacks or adds:
            told = [f"{word} {_few(names)}" for word, names in (("lacks", lacks), ("adds", adds)) if names]
            raise ValueError(
                f"{_ME}: all processes must give metrics of the same names; compared with process 0, process {rank} "
                f"{' and '.join(told)}"
            )
        for name, choice in part.how.items():
            if choice != parts[0].how[name]:
                raise ValueError(
                    f"{_ME}: all processes must reduce {name!r} alike; process 0 wants the {parts[0].how[name]}, "
                    f"process {rank} the {choice}"
                )


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:_FEW]))
    return shown if len(names) <= _FEW else f"{shown} and {len(names) - _FEW} more"
