"""Starting everything that a run consists of, or nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, final

from trackway.config._build import Backlogs, Member, build, build_bare
from trackway.config._context import RunContext
from trackway.config._environment import mode
from trackway.config._observers import silenced
from trackway.config._resume import ResumeState, check_resume, is_there
from trackway.config._run_options import Entry
from trackway.config._trackers import announce, place
from trackway.run import Run, StepPolicy
from trackway.store import LocalTracker
from trackway.store._index import index_path
from trackway.store._layout import (
    ARTIFACTS,
    CONFIG,
    DELIVERY,
    EVENTS,
    MANIFEST,
    MEDIA,
    SPANS,
    SUMMARY,
    is_url,
    lines_name,
    metrics_name,
    torn_lines_name,
    torn_name,
)
from trackway.tracker import CompositeTracker, NoopTracker, Tracker
from trackway.tracker._interface import name_of

if TYPE_CHECKING:
    from trackway.alerts import AlertsConfig
    from trackway.backends.local import LocalConfig
    from trackway.events import EventsConfig

__all__ = ["Startup"]


@final
class Startup:
    """A run that is being started.

    Attributes:
        context: What backends may know about it.
    """

    def __init__(self, context: RunContext, resume: str, state: ResumeState | None) -> None:
        self.context = context
        self._resume = resume
        self._state = state
        self._members: list[Member] = []
        self._ours: list[Tracker] = []  # those that were started here
        self._store: LocalTracker | None = None
        self._backlogs: Backlogs | None = None
        self._run: Run | None = None
        self._names: frozenset[str] | None = None  # what the directory held; None where there was none
        self._new = False  # whether what the directory holds is of this start

    def run(
        self,
        entries: Sequence[Entry],
        local: LocalConfig | None,
        *,
        step_policy: StepPolicy,
        print: bool | Callable[[str], Any],  # noqa: A002 - the field's word
        events: EventsConfig | None = None,
        alerts: AlertsConfig | None = None,
    ) -> Run:
        """Open the store, start the trackers of *entries* in their order, and return the run of them.

        The store comes first, because it tells the others where the run goes on, and a run that another process writes
        must touch none of them.
        """
        index = next((i for i, entry in enumerate(entries) if type(entry) is type(local)), None)
        path = "local" if index is None else place(entries, index, "trackers")
        store = None if local is None else self._opened(local, path)
        self._look()
        if store is not None and index is None:
            self._members.append(store)
        for position in range(len(entries)):
            if store is not None and position == index:
                self._members.append(store)
            else:
                self._start(entries, position)
        trackers = [member.tracker for member in self._members if member.tracker is not self._store]
        alone = self.context.primary  # of the processes of a job, one prints events and alerts people
        self._run = Run(
            trackers,
            self._store,
            run_id=self.context.run_id,
            step_policy=step_policy,
            print=print,
            events=events if alone else silenced(events),
            alerts=alerts if alone else None,
        )
        return self._run

    def _opened(self, local: LocalConfig, path: str) -> Member:
        if mode() != "disabled" and (self.context.primary or local.ranks == "all"):
            exists = is_there(self.context)
            check_resume(self._resume, self.context, exists=exists)
            self._names, self._new = _names_in(self.context.directory), not exists
            self.context = dataclasses.replace(self.context, resumed=exists)
        member = build_bare(dataclasses.replace(local, dir=None), self.context, path, exclusive=True)
        if not member.off:
            self._store = cast("LocalTracker", member.tracker)
            self._backlogs = Backlogs(self._store)
            self._ours.append(self._store)
        return member

    def _look(self) -> None:
        """Complete the context by what the store and the checkpoint say."""
        changes: dict[str, Any] = {}
        if self._store is not None:
            changes["attempt"] = self._store.attempt
            if self._store.last_step is not None:
                changes["next_step"] = self._store.last_step + 1
        if self._state is not None:
            changes |= {"resumed": True, "next_step": self._state.next_step}
        self.context = dataclasses.replace(self.context, **changes)

    def _start(self, entries: Sequence[Entry], position: int) -> None:
        entry = entries[position]
        if isinstance(entry, Tracker):
            off = "TRACKWAY_MODE=disabled" if mode() == "disabled" else None
            self._members.append(Member(NoopTracker(name_of(entry)) if off else entry, off))
            return
        member = build(entry, self.context, place(entries, position, "trackers"), self._backlogs)
        self._members.append(member)
        self._ours.append(member.tracker)

    def announce(self) -> None:
        """Log which trackers are active."""
        announce(self._members, self.context)

    def undo(self, error: BaseException) -> None:
        """Finish what was started, as failed because of *error*, and remove the files of a run that was new."""
        whole: Tracker = self._run or CompositeTracker(self._ours)
        with contextlib.suppress(Exception):
            whole.mark_failed(error)
        with contextlib.suppress(Exception):
            whole.finish()
        if self._new and self._store is not None:
            with contextlib.suppress(OSError):
                self._remove_files()

    def _remove_files(self) -> None:
        if is_url(self.context.directory):
            from trackway.store._remote_store import remove_new

            remove_new(self.context.directory, self.context.rank, kept=self._names or frozenset())
            return
        rank, directory = self.context.rank, Path(self.context.directory)
        rows = directory / metrics_name(rank)
        names = {rows.name, torn_name(rank), index_path(rows).name}
        names |= {of(kind, rank) for kind in (EVENTS, SPANS) for of in (lines_name, torn_lines_name)}
        if self.context.primary:
            names |= {MANIFEST, SUMMARY, CONFIG, ARTIFACTS, DELIVERY, MEDIA}
        for name in names - (self._names or frozenset()):
            path = directory / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        if self._names is None:
            directory.rmdir()  # fails where another process of the job has put something there


def _names_in(directory: str) -> frozenset[str] | None:
    if is_url(directory):
        from trackway.store._remote_store import top_level_names

        return top_level_names(directory)
    try:
        return frozenset(os.listdir(directory))  # noqa: PTH208 - may be no path at all
    except (OSError, ValueError):
        return None
