"""Runs that are not finished when the process ends.

While a run is open, the process-wide hooks below are in place: they learn why the process ends, and end the run
before the interpreter, JAX and other libraries take down what it needs. They are taken off with the last run. A
forked child has none of them.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, final

from trackway._locks import new_lock
from trackway.errors import LifecycleError
from trackway.run._ending import Ending
from trackway.run._signals import Termination
from trackway.tracker._states import Preempted, state_of

__all__ = ["forget", "refuse_in_callback", "watch"]

_open: dict[Ending, None] = {}  # in the order in which they were started
_lock = new_lock()
_worker = 0  # the process that has the hook of `multiprocessing`


def watch(ending: Ending) -> None:
    """Reach *ending* when the process ends, unless `forget` comes before; it is kept alive until then."""
    with _lock:
        _open[ending] = None
        _hooks.install()
    _be_first()
    _be_first_in_worker()


def forget(ending: Ending) -> None:
    """Leave *ending* alone, which was reached."""
    with _lock:
        _open.pop(ending, None)
        if not _open:
            _hooks.remove()


def refuse_in_callback() -> None:
    """Refuse to start a run where the thread is in the midst of a delivery or the end of another one.

    Raises:
        LifecycleError: if it is.
    """
    for ending in tuple(_open):
        if ending.in_the_midst:
            raise LifecycleError(
                f"a run was to be started from a commit, print or alert callback of run {ending.run_id}, or in the "
                "midst of its end; start it where that run was started, once it is finished"
            )


def _end_all() -> None:
    """At exit: end what is open, because of the error or the exit code with which the process ends, if any."""
    reason, endings = _hooks.reason(), tuple(_open)
    if state_of(reason) != "finished":
        assert reason is not None
        for ending in endings:
            ending.fail(reason)
    for ending in endings:
        ending.reach_quietly()


def _end_preempted() -> bool:
    """End what is open because of SIGTERM; return False where this thread is in the midst of something."""
    endings = tuple(_open)
    busy = [ending for ending in endings if ending.in_the_midst]
    if busy:
        if not busy[0].under_way:  # what follows that is soon enough: the signal is sent again
            busy[0].postpone(_hooks.termination.go_on)
        return False
    for ending in endings:
        ending.fail(Preempted("SIGTERM"))
        ending.reach_quietly()
    return True


def _rescue_all() -> None:
    """Have on disk what can be, where something hangs and nobody waits any longer."""
    for ending in tuple(_open):
        ending.rescue(Preempted("SIGTERM"))


def _be_first() -> None:
    """Last registered is first called: before trackers in the background end, and JAX closes its devices."""
    atexit.unregister(_end_all)
    atexit.register(_end_all)


def _be_first_in_worker() -> None:
    """A process made by `multiprocessing` with fork leaves without the hooks of `atexit`; it has its own."""
    global _worker  # noqa: PLW0603 - one process, one hook
    process, util = (sys.modules.get(f"multiprocessing.{name}") for name in ("process", "util"))
    if _worker == os.getpid():
        return
    if process is not None and util is not None and process.parent_process() is not None:
        _worker = os.getpid()
        util.Finalize(None, _end_worker, exitpriority=1000)


def _end_worker() -> None:
    _hooks.note(sys.exc_info()[1])  # it is called in the midst of what ends the process
    _end_all()


@final
class _ExitNote:
    """Lives as long as the `SystemExit` that it is attached to."""


@final
class _Hooks:
    """What is in place while a run is open.

    Attributes:
        termination: The handler of SIGTERM.
    """

    def __init__(self) -> None:
        self.termination = Termination(_end_preempted, _rescue_all)
        self._wrapped: list[tuple[str, Any, Any]] = []  # of `sys`: the name, what it was, what it is
        self._reason: BaseException | None = None
        self._exit: tuple[int | str | None, weakref.ref[_ExitNote]] | None = None

    def install(self) -> None:
        """Put them in place; what is there already stays."""
        self.termination.install()
        if not self._wrapped:
            self._wrap("excepthook", self._excepthook)
            self._wrap("exit", self._exiting)

    def _wrap(self, name: str, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        before = getattr(sys, name)
        after = wrapper(before)
        self._wrapped.append((name, before, after))
        setattr(sys, name, after)

    def remove(self) -> None:
        """Take them off; one that somebody else has wrapped since passes on and does nothing itself."""
        self.termination.remove()
        for name, before, after in self._wrapped:
            if getattr(sys, name) is after:
                setattr(sys, name, before)
        self._wrapped = []
        self._reason = self._exit = None

    def _excepthook(self, before: Callable[..., Any]) -> Callable[..., Any]:
        def excepthook(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
            if not (hasattr(sys, "ps1") or sys.flags.interactive):  # where the process goes on
                self.note(error)
            before(kind, error, traceback)

        return excepthook

    def _exiting(self, before: Callable[..., Any]) -> Callable[..., Any]:
        # Python tells nobody with which code it ends, and calls no hook for SystemExit
        def exit(status: Any = None, /) -> None:  # noqa: A001 - the name that tracebacks show
            try:
                before(status)
            except SystemExit as error:
                if threading.current_thread() is threading.main_thread():
                    self._note_exit(error)
                raise

        return exit

    def _note_exit(self, error: SystemExit) -> None:
        note = _ExitNote()
        error._trackway = note  # type: ignore[attr-defined]  # noqa: SLF001 - no exception can be weakly referenced
        self._exit = (error.code, weakref.ref(note, self._exit_gone))

    def _exit_gone(self, gone: weakref.ref[_ExitNote]) -> None:
        """Forget an exit that someone caught: it ends in a frame of Python's, one that ends the process in none."""
        if self._exit is not None and self._exit[1] is gone and sys._getframe().f_back is not None:  # noqa: SLF001
            self._exit = None

    def note(self, error: BaseException | None) -> None:
        """Note an error with which the process ends."""
        self._reason = error if _open else None

    def reason(self) -> BaseException | None:
        """Return why the process ends; None where it simply came to its end."""
        if self._reason is None and self._exit is not None:
            return SystemExit(self._exit[0])
        return self._reason

    def after_fork(self) -> None:
        """Take them off in a child, also in the midst of what SIGTERM has begun in the parent."""
        self.termination.forget()
        self.remove()


_hooks = _Hooks()


def _abandon_all() -> None:
    """In a forked child: the runs are the parent's."""
    for ending in tuple(_open):
        ending.abandon()
    _open.clear()
    _hooks.after_fork()


def _be_first_at_shutdown() -> None:
    """Once the main thread is at its end: what was registered since a run was started must not come before it.

    Nor what the threads register for which the interpreter waits now.
    """
    if not _open:
        return
    _be_first()
    me = threading.current_thread()
    others = [thread for thread in threading.enumerate() if not thread.daemon and thread is not me]
    if others:
        with contextlib.suppress(RuntimeError):  # no thread can be had
            threading.Thread(target=_be_first_after, args=(others,), name="trackway-exit").start()


def _be_first_after(threads: Iterable[threading.Thread]) -> None:
    for thread in threads:
        thread.join()
    _be_first()


os.register_at_fork(after_in_child=_abandon_all)
# private, but what concurrent.futures relies on; without it `watch` alone decides
if (register := getattr(threading, "_register_atexit", None)) is not None:
    with contextlib.suppress(RuntimeError):  # imported at the very end
        register(_be_first_at_shutdown)
