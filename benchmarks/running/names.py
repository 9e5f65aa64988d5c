"""A run that logs a new name at every step, as programs do by mistake."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator

from figures import Figure
from running.rows import Sizes, resident_megabytes

import trackway


class Collector(logging.Handler):
    """Keeps the messages of at least WARNING."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one."""
        self.messages.append(record.getMessage())


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Log that many names, one a row."""
    collector = Collector()
    logging.getLogger("trackway").addHandler(collector)
    with tempfile.TemporaryDirectory(prefix="trackway-bench-") as folder:
        with trackway.start(dir=folder, run_id="run") as run:
            trackway.log({"loss": 0.5}, step=0)
            before = resident_megabytes()
            for step in range(1, sizes.names):
                trackway.log({f"train/sample_{step}/loss": 0.5}, step=step)
            grown = resident_megabytes() - before
            kept = len(run.summary)
            assert run.report().late == 0
        finished = resident_megabytes() - before
    name = f"{sizes.names:,} names of metrics: "
    yield Figure(f"{name}messages that the summary is full", [len(collector.messages)], at_most=1, at_least=1, unit="")
    yield Figure(f"{name}names in the summary", [kept], at_most=10_000, unit="")
    yield Figure(f"{name}memory that the process has gained", [grown], unit="MB")
    yield Figure(f"{name}memory gained when it is finished", [finished], unit="MB")
