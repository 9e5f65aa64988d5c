"""One end for a run, whoever asks for it and however often."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import final

from trackway import _notices
from trackway.errors import LifecycleError, TrackerFinishError
from trackway.run._signals import in_signal_handler

__all__ = ["Ending"]


@final
class Ending:
    """Takes *steps* in their order, once; each is taken whatever became of those before.

    Threads that ask for the end while it is under way wait for it and get the same failure.

    Attributes:
        run_id: The run's id.
        fail: Has the run end because of an error.
        rescue: Saves the rows and why the run ends, on another thread than the one that hangs in the steps.
        abandon: Leaves the run to the parent, in a forked child.
        postpone: Calls a function once what this thread is in the midst of is done.
    """

    def __init__(
        self,
        run_id: str,
        steps: Sequence[Callable[[], None]],
        *,
        busy: Callable[[], bool] = bool,
        fail: Callable[[BaseException], None] = lambda _: None,
        rescue: Callable[[BaseException], None] = lambda _: None,
        abandon: Callable[[], None] = lambda: None,
        postpone: Callable[[Callable[[], None]], None] = lambda action: action(),
    ) -> None:
        """Take *steps*; *busy* tells whether this thread is in the midst of a row or a delivery of the run."""
        self.run_id = run_id
        self.fail = fail
        self.rescue = rescue
        self.abandon = abandon
        self.postpone = postpone
        self._steps = steps
        self._busy = busy
        self._done = threading.Event()
        self._claims: dict[str, tuple[int, object]] = {}
        self._failure: TrackerFinishError | None = None

    @property
    def under_way(self) -> bool:
        """Whether this thread is in the midst of the steps."""
        claim = self._claims.get("end")
        return claim is not None and claim[0] == threading.get_ident() and not self._done.is_set()

    @property
    def in_the_midst(self) -> bool:
        """Whether this thread is in the midst of the steps, of a row or of a delivery: it cannot end the run."""
        return self.under_way or self._busy()

    def reach(self) -> None:
        """Take the steps, or wait until they are taken; does nothing once that is so.

        In a signal handler that interrupted a row or a delivery, the end follows right after that.

        Raises:
            LifecycleError: from a commit, print or alert callback, or from one of the steps.
            TrackerFinishError: holding what the steps raised.
        """
        if self._done.is_set():
            return
        if self.in_the_midst:
            self._ask_later()
            return
        me = (threading.get_ident(), object())
        if self._claims.setdefault("end", me) is me:  # one operation: a signal handler may ask at any moment
            self._take_steps()
        else:
            self._done.wait()
        if self._failure is not None:
            raise self._failure

    def _ask_later(self) -> None:
        if not in_signal_handler():
            where = "from a commit, print or alert callback" if self._busy() else "in the midst of its own end"
            raise LifecycleError(
                f"run {self.run_id}: finish was called {where}, which it would have to wait for; call it where the "
                "run was started"
            )
        if not self.under_way:
            self.postpone(self.reach_quietly)

    def reach_quietly(self) -> None:
        """Reach the end where nobody is there to whom a failure could be raised: it is logged."""
        try:
            self.reach()
        except Exception as error:
            reasons = error.exceptions if isinstance(error, TrackerFinishError) else ()
            _notices.logger.error("%s%s", error, "".join(f"; {reason}" for reason in reasons))

    def _take_steps(self) -> None:
        failures: list[Exception] = []
        interrupt: BaseException | None = None
        try:
            for step in self._steps:
                try:
                    step()
                except TrackerFinishError as group:
                    failures += group.exceptions
                except Exception as error:
                    failures.append(error)
                except BaseException as error:  # Ctrl+C: what is left is done all the same
                    interrupt = interrupt or error
            if failures:
                self._failure = TrackerFinishError(f"run {self.run_id} did not end well", failures)
        finally:
            self._done.set()
        if interrupt is not None:  # of this thread alone
            raise interrupt
