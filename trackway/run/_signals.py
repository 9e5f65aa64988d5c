"""Signal handlers: telling whether one is running, and ending runs when the process is told to end."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import final

from trackway import _notices

__all__ = ["Termination", "in_signal_handler"]

_PATIENCE = 10.0  # seconds from the signal to the end of the process, whatever the runs still wait for
_PAUSE = 0.05
_RESCUE = 1.0
_WITH_VARARGS = 0x04  # inspect.CO_VARARGS


def in_signal_handler(above: CodeType | None = None) -> bool:
    """Tell whether this thread is in a signal handler that interrupted other code.

    A handler is told by the frame that it interrupted, which is both its argument and its caller. Takes some
    microseconds; not meant for every row.

    Args:
        above: Look no further down than to the latest call of this code.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to walk the stack
    while frame is not None and frame.f_back is not None and frame.f_code is not above:
        if _was_handed(frame, frame.f_back):
            return True
        frame = frame.f_back
    return False


def _was_handed(frame: FrameType, interrupted: FrameType) -> bool:
    code = frame.f_code
    varargs = bool(code.co_flags & _WITH_VARARGS)
    names = code.co_varnames[: code.co_argcount]
    if len(names) < 2 and not varargs:  # noqa: PLR2004 - the number of the signal and the frame
        return False
    values = frame.f_locals
    if any(values.get(name) is interrupted for name in names):
        return True
    if not varargs:
        return False
    rest = values.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount])
    return isinstance(rest, tuple) and any(value is interrupted for value in rest)


@final
class Termination:
    """Has SIGTERM end the runs before it ends the process, which still dies of the signal.

    Installed only by the main thread, and only where the signal has its default action. A second signal changes
    nothing. Python calls a handler between two of its own instructions: a main thread that stays in compiled code
    is not ended by it.
    """

    def __init__(self, end: Callable[[], bool], rescue: Callable[[], None]) -> None:
        """Call *end* when the signal comes, and again a moment later for as long as it returns False.

        Where that does not come to its end in ten seconds, *rescue* has another one, on a thread of its own.
        """
        self._end = end
        self._rescue = rescue
        self._dying = False
        self._handler = self._handle  # one object: a bound method is a new one at each access

    def install(self) -> None:
        """Install the handler where that is possible; done again it changes nothing."""
        if threading.current_thread() is not threading.main_thread():
            return
        with contextlib.suppress(ValueError):  # not the main interpreter
            if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                signal.signal(signal.SIGTERM, self._handler)

    def remove(self) -> None:
        """Restore the default action, unless someone has put another handler in place, or the signal has come."""
        if self._dying or threading.current_thread() is not threading.main_thread():
            return  # left in place it ends the process as the default action does
        with contextlib.suppress(ValueError):
            if signal.getsignal(signal.SIGTERM) is self._handler:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def forget(self) -> None:
        """Forget a signal that came to the parent, in a forked child."""
        self._dying = False

    def _handle(self, _signal: int, _frame: FrameType | None) -> None:
        if not self._dying:
            self._dying = True
            try:
                threading.Thread(target=self._insist, name="trackway-sigterm", daemon=True).start()
            except RuntimeError as error:
                _notices.logger.warning("SIGTERM: no thread can be started that would bound the end: %s", error)
        self.go_on()

    def go_on(self) -> None:
        """End the runs, if the signal has come and that is possible now, and then the process."""
        if self._dying and self._end():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

    def _insist(self) -> None:
        """Send the signal again until the process dies of it; in the end without asking Python."""
        import ctypes

        for _ in range(round(_PATIENCE / _PAUSE)):
            time.sleep(_PAUSE)
            os.kill(os.getpid(), signal.SIGTERM)  # the handler looks again whether the main thread can be interrupted
        rescue = threading.Thread(target=self._last_words, name="trackway-rescue", daemon=True)
        with contextlib.suppress(RuntimeError):
            rescue.start()
            rescue.join(_RESCUE)
        ctypes.pythonapi.PyOS_setsig(signal.SIGTERM, None)  # signal.signal() is for the main thread, which hangs
        os.kill(os.getpid(), signal.SIGTERM)

    def _last_words(self) -> None:
        self._rescue()
        _notices.logger.warning("SIGTERM: the runs did not end within %g s; the process ends without that", _PATIENCE)
