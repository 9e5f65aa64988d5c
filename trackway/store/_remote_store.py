"""A run on an object store, as the tracker sees it that writes the run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import final

from trackway import _notices
from trackway.errors import ConfigError, RunBusyError
from trackway.store import _remote_spool
from trackway.store._at_exit import bring_before_exit
from trackway.store._layout import (
    ARTIFACTS,
    CONFIG,
    DELIVERY,
    EVENTS,
    MANIFEST,
    MEDIA,
    METRICS,
    SPANS,
    SUMMARY,
    torn_lines_name,
)
from trackway.store._lease import Lock
from trackway.store._mirror import Courier, Rows
from trackway.store._mirror_files import Files
from trackway.store._remote import Remote
from trackway.store._remote_claim import Claim, claims_of
from trackway.store._scan import Source
from trackway.store._segments import folder_of, segments_in
from trackway.tracker import Ledger

__all__ = ["PATIENCE", "RemoteStore", "exists", "remove_new", "top_level_names"]

PATIENCE = 30.0
"""Seconds for which the end of a run waits for the store."""


@final
class RemoteStore:
    """Keeps what is written to a directory of this machine at a URL as well.

    Two threads bring it: one rows and what describes them, the other artifacts, which may be large.

    Attributes:
        url: Where the run belongs.
        spool: The directory to write to.
        name: The last part of the URL.
    """

    def __init__(self, url: str, rank: int, interval: float) -> None:
        """Claim the run of *url* and have in the spool what there is of it; bring what is new every *interval* seconds.

        Raises:
            RunBusyError: if another process writes to the run.
            ConfigError: if the store, or the spool, cannot be used.
        """
        remote = Remote(url)
        self.url = remote.url
        self.name = remote.name
        self._claim = Claim(remote, rank)
        try:
            self.spool: Path = _remote_spool.spool_of(url, rank)
            if _remote_spool.is_used(self.spool, rank):
                raise self._busy()
            self._claim.acquire()
            listing = remote.listing()
            brought = _remote_spool.fill(remote, listing, self.spool, rank)
        except OSError as error:
            self.abandon()
            raise ConfigError(
                f"local: the run in {self.url} cannot be opened: {error.strerror or error}; check the URL, what you "
                "may do there and the credentials, or give a path of this machine as `dir`"
            ) from error
        rows = Rows(remote, self.spool, rank, listing, claim=self._claim, brought=brought)
        self._files = Files(self.spool, remote, listing, ARTIFACTS)
        self._rows = Courier("trackway-store", self.url, interval, rows.bring, beat=rows.beat, more=rows.is_full)
        self._artifacts = Courier("trackway-artifacts", self.url, interval, self._bring_artifacts)

    def _bring_artifacts(self) -> None:
        if self._rows.lost is None:
            self._files.bring()

    def others(self) -> Mapping[int, Callable[[], Source]]:
        """Find the rows of all processes, as they are at the URL; raises `OSError` where it cannot be asked."""
        from trackway.store._remote_read import RemoteRun

        return RemoteRun(self.url).others()

    def check(self, lock: Lock) -> None:
        """Refuse a spool whose file of rows could not be locked; the claim has told about other machines.

        Raises:
            RunBusyError: if someone else has it.
        """
        if lock == "taken":
            raise self._busy()

    def _busy(self) -> RunBusyError:
        who = self._claim.holder() or "another tracker of this machine"
        return RunBusyError(
            f"local: the run in {self.url} is being written by {who}, from {self.spool}; a run has one writer at a "
            "time: wait until it ends, or end it, or give another run id"
        )

    def start(self, ledger: Ledger) -> None:
        """Begin to bring what is written; failures are counted in *ledger*."""
        _notices.logger.info("local: the run is brought to %s from %s", self.url, self.spool)
        for courier in (self._rows, self._artifacts):
            courier.start(ledger)
            courier.ask()
        bring_before_exit()

    def ask(self) -> None:
        """Have what is new brought soon; does not wait for that."""
        self._rows.ask()
        self._artifacts.ask()

    def bring_now(self, seconds: float) -> None:
        """Have what is there by now brought, and wait for that, but not longer, nor where the store is away."""
        self._rows.bring_now(seconds)

    def abandon(self) -> None:
        """Leave the run to others, where it could not be opened."""
        with contextlib.suppress(Exception):
            self._claim.release()

    def close(self, patience: float | None = None) -> list[Exception]:
        """Bring everything and leave the run to others; return what went wrong, if that could not be done in time.

        Then what is left stays in the spool. Else the spool is removed.

        Args:
            patience: Seconds to wait at most; None waits `PATIENCE`.
        """
        deadline = time.monotonic() + (PATIENCE if patience is None else patience)
        self._rows.end()
        self._artifacts.end()
        couriers = (self._rows, self._artifacts)
        for courier in couriers:
            courier.wait(deadline - time.monotonic())
            courier.give_up()
        if self._rows.complete and self._artifacts.complete:
            self.abandon()
            _remote_spool.remove(self.spool)
            return []
        self._claim.forget()
        lost = self._rows.lost
        error = self._rows.error or self._artifacts.error
        reason = f"{lost} has taken it over" if lost else error or "the time was too short"
        cure = (
            "the rows that are not there are kept"
            if lost
            else "everything is kept, and brought when the run is started again on this machine"
        )
        return [OSError(f"local: not all of the run could be brought to {self.url}: {reason}; {cure} in {self.spool}")]

    def leave(self) -> None:
        """Bring everything, and leave the run to others then, without waiting for that."""
        self._artifacts.end()
        self._rows.end(self.abandon)


def exists(url: str, rank: int) -> bool:
    """Whether there is something of the run at *url* for process *rank* to continue, there or in its spool.

    Raises:
        ConfigError: if the store cannot be asked.
    """
    remote = Remote(url)
    try:
        if _remote_spool.has_rows(_remote_spool.spool_of(url, rank), rank):
            return True
        listing = remote.listing()
    except OSError as error:
        raise ConfigError(f"local: {remote.url} cannot be looked at: {error}; check the URL and credentials") from error
    return bool(segments_in(listing, rank)) or (rank == 0 and MANIFEST in listing)


def top_level_names(url: str) -> frozenset[str]:
    """Return the names of what lies right below *url*; none where it cannot be asked."""
    try:
        return frozenset(Remote(url).children())
    except OSError:
        return frozenset()


def remove_new(url: str, rank: int, *, kept: frozenset[str]) -> None:
    """Remove what a start that failed has made of the run at *url*, and its spool, but nothing called as in *kept*.

    Raises:
        OSError: if that fails.
    """
    remote = Remote(url)
    _remote_spool.remove(_remote_spool.spool_of(url, rank))
    names = {claims_of(rank)}
    for kind in (METRICS, EVENTS, SPANS):
        names |= {folder_of(rank, kind), torn_lines_name(kind, rank)}
    if rank == 0:
        names |= {MANIFEST, SUMMARY, CONFIG, ARTIFACTS, DELIVERY, MEDIA}
    for name in sorted(names.intersection(remote.children()) - kept):
        remote.remove(name)
