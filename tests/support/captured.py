"""What the tests of logging in compiled code share: run a function captured, compare what it logged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

import trackway

__all__ = ["assert_logs", "assert_rows", "flat", "own", "run", "tap"]


def run(f: Callable[..., Any], *args: Any, jit: bool = True) -> tuple[Any, dict[str, Any]]:
    """Call *f* captured, compiled unless told otherwise; return its result and what it logged, on the host."""
    captured = trackway.capture_logging(f)
    out, logs = (jax.jit(captured) if jit else captured)(*args)
    return out, dict(logs.to_host())


def tap(result: Any, metrics: Mapping[str, Any], **options: Any) -> Any:
    """Log *metrics* and return *result*, so that a lambda can log."""
    trackway.log(metrics, **options)
    return result


def assert_logs(logs: Mapping[str, Any], expected: Mapping[str, Any] | None = None, /, **more: Any) -> None:
    """Require exactly these names, of these shapes and values, to the precision of float32."""
    wanted = {**(expected or {}), **more}
    assert sorted(logs) == sorted(wanted)
    for name, value in wanted.items():
        got = np.asarray(logs[name])
        assert got.shape == np.shape(value), f"{name}: shape {got.shape}, expected {np.shape(value)}"
        np.testing.assert_allclose(got, np.asarray(value), rtol=1e-6, err_msg=name)


def own(caught: Any) -> list[str]:
    """Return the messages of trackway's own warnings among those that `pytest.warns` caught."""
    return [str(warning.message) for warning in caught if issubclass(warning.category, trackway.TrackwayWarning)]


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return *row* with the names of nested mappings joined by `/`."""
    out: dict[str, Any] = {}
    for name, value in row.items():
        nested = flat(value) if isinstance(value, Mapping) else None
        out.update({name: value} if nested is None else {f"{name}/{key}": leaf for key, leaf in nested.items()})
    return out


def assert_rows(rows: Any, expected: list[tuple[int | None, dict[str, Any]]]) -> None:
    """Require these rows in this order: their steps, their names, and their values to the precision of float32."""
    rows = list(rows)
    assert [step if step is None else int(step) for step, _ in rows] == [step for step, _ in expected]
    for (_, row), (_, wanted) in zip(rows, expected, strict=True):
        assert_logs(flat(row), wanted)
