"""The functions of the language: what each takes, and how many points it needs."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias, final

__all__ = ["FUNCTIONS", "MAX_POINTS", "Function"]

Takes: TypeAlias = Literal["expression", "series", "metric", "duration", "nothing"]
MAX_POINTS = 1_000_000


@final
class Function(NamedTuple):
    """One function.

    Attributes:
        takes: What stands in its brackets.
        gives: A number, or a truth value.
        meaning: What it gives, to follow the name of the metric and its window.
        least: Points that it needs.
        window: Whether a window must be given, may be (then none means all points), or is so many points by default.
        in_time: Whether the window may be one in time.
        parameter: Name of a number that may follow the metric, if there is one.
    """

    takes: Takes
    gives: Literal["number", "truth"]
    meaning: str
    least: int = 1
    window: Literal["required", "optional"] | int = "required"
    in_time: bool = True
    parameter: str | None = None


FUNCTIONS: dict[str, Function] = {
    "abs": Function("expression", "number", "the absolute value"),
    "isnan": Function("expression", "truth", "whether it is NaN"),
    "isinf": Function("expression", "truth", "whether it is infinite"),
    "has": Function("metric", "truth", "whether it was ever logged"),
    "age": Function("metric", "number", "seconds since it was last logged"),
    "count": Function("series", "number", "the number of finite points", window="optional"),
    "mean": Function("series", "number", "the mean", window="optional"),
    "std": Function("series", "number", "the standard deviation", 2, window="optional"),
    "median": Function("series", "number", "the median"),
    "min": Function("series", "number", "the smallest value", window="optional"),
    "max": Function("series", "number", "the largest value", window="optional"),
    "sum": Function("series", "number", "the sum", window="optional"),
    "first": Function("series", "number", "the oldest value", window="optional"),
    "last": Function("series", "number", "the newest finite value", window=1),
    "diff": Function("series", "number", "the newest value minus the oldest", 2, window=2),
    "rate": Function("series", "number", "the change per second from the oldest value to the newest", 2, window=2),
    "pct_change": Function(
        "series", "number", "the change from the oldest value to the newest in percent", 2, window=2
    ),
    "slope": Function("series", "number", "the slope of the fitted line, per step", 2),
    "zscore": Function(
        "series", "number", "how many standard deviations of the others the newest lies off their mean", 3
    ),
    "ema": Function(
        "series", "number", "the exponential moving average", window="optional", in_time=False, parameter="alpha"
    ),
    "increasing": Function("series", "truth", "whether each value is larger than the one before", 2),
    "decreasing": Function("series", "truth", "whether each value is smaller than the one before", 2),
    "stalled": Function(
        "series", "truth", "whether all values lie within the tolerance of one another", 2, parameter="tolerance"
    ),
    "step": Function("nothing", "number", "the step of the row"),
    "elapsed": Function("nothing", "number", "seconds since the first row"),
    "no_data": Function("duration", "truth", "whether no row was accepted for so long"),
}
