"""Everything about a run as one field of a configuration."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, final

from trackway.config._agree import AGREE_TIMEOUT
from trackway.config._base import TrackerConfig
from trackway.config._trackers import Trackers
from trackway.errors import ConfigError
from trackway.events import EventsConfig
from trackway.values import redaction_policy

if TYPE_CHECKING:
    from trackway.run import Run

__all__ = ["TrackingConfig"]


@final
@dataclass
class TrackingConfig:
    """How a run is tracked: the type of a trainer's field.

    ```python
    @dataclass
    class TrainerConfig:
        tracking: TrackingConfig = field(default_factory=TrackingConfig)

    with config.tracking.start(config=config) as run:
        ...
    ```

    The fields are the parameters of `trackway.start` that a file can say.

    Attributes:
        trackers: The trackers beside the run directory; options of the directory itself go to `type: local`.
        run_id: The run's id; None takes `TRACKWAY_RUN_ID`, else makes one up.
        dir: The folder of run directories; None takes `TRACKWAY_DIR`, or "runs".
        resume: Whether a run of that id is continued if there is one ("allow"), has to be there ("must"), or must not
            ("never").
        step_policy: What becomes of rows whose step lies behind: "monotonic" drops them, "allow" keeps them, "error"
            raises `StepError`.
        print: Whether each committed row is printed as one line; in Python also a callable that gets the line.
        strict_json: Write NaN and infinities as null with what they were beside it, for parsers that refuse them.
        store: False keeps no run directory.
        events: How events are told: text, files, cadence, hooks.
        hooks: Who is called with every event, beside those in *events*: import paths, "package.module:name"; in Python
            also callables and objects with `on_event`.
        alerts: Rules that are looked at with every committed row: a list of them, or a mapping of the fields of
            `trackway.alerts.AlertsConfig`.
        redact: Which values are secrets: a mapping of the fields of `RedactionPolicy`, or false for none.
        agree_timeout: Seconds for which the other processes of a job wait until rank 0 has started the run.

    Raises:
        ConfigError: if a value is not allowed, or two of them contradict each other.
        AlertSyntaxError: if a rule cannot be read.
    """

    trackers: Trackers = field(default_factory=Trackers)
    run_id: str | None = None
    dir: str | None = None
    resume: Literal["allow", "must", "never"] = "allow"
    step_policy: Literal["monotonic", "allow", "error"] = "monotonic"
    print: bool | Callable[[str], Any] = False
    strict_json: bool = False
    store: bool = True
    events: EventsConfig = field(default_factory=EventsConfig)
    hooks: tuple[Any, ...] = ()
    alerts: Any = None
    redact: Any = None
    agree_timeout: float = AGREE_TIMEOUT

    def __post_init__(self) -> None:
        from trackway.config._observers import alerts_of, events_of
        from trackway.config._run_options import check_run_options, entries_of, store_config, without_default

        entries = entries_of(self.trackers)
        configs = [entry for entry in entries if isinstance(entry, TrackerConfig)]
        if len(configs) < len(entries):
            raise ConfigError(
                "trackers of a TrackingConfig must be TrackerConfigs, got a Tracker, which is started already; give it "
                "to `start(trackers=...)`"
            )
        self.trackers = Trackers(configs)
        elsewhere = {"trackers", "events", "hooks", "alerts", "redact"}
        check_run_options(**{name: value for name, value in self._values().items() if name not in elsewhere})
        if isinstance(self.hooks, Iterable) and not isinstance(self.hooks, str | bytes | Mapping):
            self.hooks = tuple(self.hooks)  # once: it may be a generator
        self.events = events_of(self.events) or EventsConfig()
        events_of(self.events, self.hooks)
        given: Any = self.hooks
        self.hooks = () if given is None else (given,) if isinstance(given, str) else given
        alerts_of(self.alerts)
        redaction_policy(self.redact)
        self.dir = None if self.dir is None else os.fspath(self.dir)
        told = configs if self.store else without_default(configs)
        store_config(told, self.dir, strict_json=self.strict_json, store=self.store)

    def _values(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def start(self, **changes: Any) -> Run:
        """Start the run: `trackway.start` with the fields as its arguments.

        Args:
            **changes: Arguments of `trackway.start` in place of fields, and beside them: `resume_state`, `config`.

        Raises:
            ConfigError: and what else `trackway.start` raises.
        """
        from trackway.config._start import start

        return start(**{**self._values(), **changes})
