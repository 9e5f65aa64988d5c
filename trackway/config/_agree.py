"""One run for all processes of a job: its id, and the news that it could not be started, come from rank 0."""

from __future__ import annotations

import contextlib
import itertools
import json
from types import TracebackType
from typing import Any, Self, final

from trackway import _notices
from trackway.config._environment import mode, run_id_from_environment
from trackway.config._resume import ResumeState, choose_run_id
from trackway.config._run_id import check_run_id
from trackway.errors import ConfigError, RunBusyError, TrackwayError
from trackway.tracker import _process

__all__ = ["AGREE_TIMEOUT", "Agreement"]

AGREE_TIMEOUT = 30.0
"""Seconds for which the other processes wait until rank 0 has started its run."""

_MAX_TEXT = 4000  # characters of an error
_KINDS: dict[str, type[TrackwayError]] = {kind.__name__: kind for kind in (ConfigError, RunBusyError)}
_starts = itertools.count(1)


@final
class Agreement:
    """What the processes of a job have to know of each other when they start a run.

    Every process counts its starts, so that the n-th one of each is of the same run. As a context manager it fixes the
    rank for the block; at the end of the block, or once `failed` is called, rank 0 tells the others how it went. Only
    rank 0 is waited for: what fails in another process is that one's business.
    """

    def __init__(self, timeout: float) -> None:
        """Count a start; on other ranks than 0, wait *timeout* seconds for rank 0's."""
        self._job = _process.job()
        self._timeout = timeout
        self._key = f"trackway/start/{next(_starts)}"
        self._shared = _process.shared()
        self._run_id: str | None = None
        self._told = self._job.rank != 0 or self._shared is None
        self._block = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._block.enter_context(_process.fixed(self._job))
        _process.compare()
        _process.compare(self._job.rank)
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        self._block.close()
        if error is not None:
            self.failed(error)
        else:
            _process.note(self._job.rank)
            self._tell({"run_id": self._run_id})

    def failed(self, error: BaseException) -> None:
        """Tell the other processes that rank 0 could not start; does nothing on another rank."""
        text = str(error)[:_MAX_TEXT]
        self._tell({"error": {"type": type(error).__name__, "message": text}})

    def _tell(self, outcome: dict[str, Any]) -> None:
        if self._told or self._shared is None:
            return
        self._told = True
        try:
            self._shared.put(self._key, json.dumps(outcome))
        except Exception as error:
            _notices.logger.warning(
                "rank 0 cannot tell the other processes how the start of the run went: %s; they will wait for it in "
                "vain, and fail",
                error,
            )

    def run_id(self, given: str | None, state: ResumeState | None) -> str:
        """Return the id of the run: that of rank 0; for a process on its own, what `choose_run_id` says.

        Raises:
            ConfigError: if rank 0 could not start, or did not within the time; if there is no way to agree on an id,
                and none is given; and as `choose_run_id` does.
            TrackwayError: if rank 0 could not start for a reason that is none of the configuration's.
        """
        if self._shared is not None and self._job.rank:
            return self._agreed(given, state)
        if self._shared is None and self._must_be_told(given, state):
            raise self._no_id()
        self._run_id = choose_run_id(given, state)
        return self._run_id

    def _agreed(self, given: str | None, state: ResumeState | None) -> str:
        assert self._shared is not None
        run_id = self._read(self._wait(self._shared))
        if given is not None or state is not None or run_id_from_environment() is not None:
            own = choose_run_id(given, state)
            if own != run_id:
                _notices.logger.warning(
                    "rank %d was to write to run %s, and rank 0 has started run %s: all processes of a job write to "
                    "one run, that of rank 0; give all of them the same run_id",
                    self._job.rank,
                    own,
                    run_id,
                )
        return run_id

    def _wait(self, shared: _process.Shared) -> str:
        try:
            return shared.get(self._key, self._timeout)
        except TimeoutError:
            raise ConfigError(
                f"rank {self._job.rank}: rank 0 has not started its run within {self._timeout:g} s; every process of "
                "the job has to call trackway.start as often as rank 0 does, and in the same order; if rank 0 needs "
                "longer, raise agree_timeout"
            ) from None
        except ConnectionError as error:
            raise TrackwayError(
                f"rank {self._job.rank}: rank 0 cannot be asked for its run, it has probably ended: {error}"
            ) from error

    def _read(self, text: str) -> str:
        outcome = json.loads(text)
        error = outcome.get("error")
        if error is None:
            return check_run_id(outcome.get("run_id"))
        kind = _KINDS.get(error["type"], TrackwayError)
        what = error["message"] if kind is not TrackwayError else f"{error['type']}: {error['message']}"
        raise kind(f"rank {self._job.rank} starts no run, because rank 0 could not: {what}")

    def _must_be_told(self, given: str | None, state: ResumeState | None) -> bool:
        if not self._job.several or _process.forked() or mode() == "disabled":
            return False
        return given is None and state is None and run_id_from_environment() is None

    def _no_id(self) -> ConfigError:
        return ConfigError(
            f"this process is {self._job}, by {self._job.source}, and the processes of the job cannot agree on a run "
            "id: give all of them the same run_id, or set TRACKWAY_RUN_ID for all, or start the run after "
            "jax.distributed.initialize(); for a process that is no part of a job, set RANK=0 and WORLD_SIZE=1"
        )
