"""Hyper-parameters as TensorBoard's HParams view takes them."""

from __future__ import annotations

import math
import time
from typing import Any, final

from trackway._locks import new_lock
from trackway.backends._tensorboard_summaries import json_text, plugin_value
from trackway.backends._tensorboard_tags import valid_text
from trackway.store._summary import merge
from trackway.tracker import Ledger
from trackway.tracker._yaml import dump
from trackway.values import Row, encode, flatten

__all__ = ["HyperParameters"]

_START_TAG, _END_TAG = "_hparams_/session_start_info", "_hparams_/session_end_info"
_EXACT = 2**53
_LONG = 200_000  # PyYAML takes two seconds for a megabyte
_LATE = "hyper-parameters logged after the first row: only in the text `config`"


@final
class HyperParameters:
    """All hyper-parameters of a run so far, later ones over earlier ones; nested mappings are merged. Thread-safe.

    TensorBoard looks at the first session start of a run alone, so that this waits until the run begins in earnest;
    what comes later is in the text `config` only, and counted. The text is made anew every *interval* seconds at
    most, since it holds all of them each time.

    Attributes:
        started: Whether the session start was taken.
    """

    def __init__(self, run_name: str, ledger: Ledger, interval: float) -> None:
        self.started = False
        self._run_name = valid_text(run_name)
        self._ledger = ledger
        self._interval = interval
        self._tree: dict[str, Any] = {}
        self._changed = False
        self._next_text = -math.inf
        self._since = time.time()
        self._lock = new_lock()

    def update(self, hparams: Row) -> None:
        """Merge *hparams* into those known."""
        self._ledger.count_downgrades(hparams)
        with self._lock:
            merge(self._tree, hparams)
            self._changed = True
            late = self.started and bool(hparams)
        if late:
            self._ledger.convert("hyper-parameters", _LATE)

    def take_start(self) -> Any:
        """Return the `Summary.Value` that makes the run a session of the HParams view, once; None otherwise.

        There is no value for an "experiment": TensorBoard works out the columns from all runs, but takes them from a
        single run where one declares them, which hides what the others have.
        """
        if self.started or not self._tree:  # every row passes here
            return None
        with self._lock:
            if self.started or not self._tree:
                return None
            self.started = True
            return self._start()

    def take_text(self, *, now: bool) -> str | None:
        """Return them all as a text if they changed and it is *now* or the last text is old enough; else None."""
        if not self._changed:
            return None
        with self._lock:
            if not self._changed or not (now or time.monotonic() >= self._next_text):
                return None
            self._changed, self._next_text = False, time.monotonic() + self._interval
            return self._as_text()

    def renew(self, *, start: bool) -> None:
        """Have the text be taken once more, and the session start too if *start*: TensorBoard may hide what it had."""
        with self._lock:
            self._changed, self._next_text = bool(self._tree), -math.inf
            self.started = self.started and not start

    def end(self, *, failed: bool) -> Any:
        """Return the `Summary.Value` that says how the run ended."""
        from tensorboardX.proto.api_pb2 import Status
        from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData, SessionEndInfo

        status = Status.Value("STATUS_FAILURE" if failed else "STATUS_SUCCESS")
        info = SessionEndInfo(status=status, end_time_secs=time.time())
        return plugin_value(_END_TAG, "hparams", HParamsPluginData(version=0, session_end_info=info))

    def _as_text(self) -> str:
        """All of them, untouched, as YAML in a Markdown code block; as JSON, which is YAML too, where long."""
        body = encode(self._tree)
        text = dump(self._tree) if len(body) < _LONG else body.decode("utf-8", "replace") + "\n"
        return f"```yaml\n{text}```"

    def _start(self) -> Any:
        from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData, SessionStartInfo

        info = SessionStartInfo(group_name=self._run_name, start_time_secs=self._since)
        for name, value in flatten(self._tree).items():
            self._put(info.hparams[valid_text(name)], name, value)
        return plugin_value(_START_TAG, "hparams", HParamsPluginData(version=0, session_start_info=info))

    def _put(self, field: Any, name: str, value: Any) -> None:
        if isinstance(value, bool):
            field.bool_value = value
        elif isinstance(value, str):
            field.string_value = valid_text(value)
        elif isinstance(value, float) and math.isfinite(value):
            field.number_value = value
        elif isinstance(value, int) and -_EXACT <= value <= _EXACT:
            field.number_value = float(value)
        else:  # the view's JSON has no NaN, and a float64 no 2**53 + 1
            reason = "hyper-parameters that are no text, bool or finite float64 become texts"
            self._ledger.convert(name, reason, lossless=True)  # the text `config` has them all as they are
            field.string_value = valid_text("None" if value is None else json_text(value))
