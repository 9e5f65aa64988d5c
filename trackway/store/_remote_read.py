"""Reading runs on object stores."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import final

from trackway.store._layout import MANIFEST, METRICS, lines_name, metrics_name
from trackway.store._remote import Remote
from trackway.store._scan import Source
from trackway.store._segments import Segment, Segments, ranks_in, segments_in

__all__ = ["RemoteRun", "run_urls", "source_of"]


@final
class RemoteRun:
    """A run at an fsspec URL, finished or being written; each method looks at what is there at that moment.

    Attributes:
        url: Its URL.
    """

    def __init__(self, url: str) -> None:
        """Look at the run at *url*; nothing is asked yet.

        Raises:
            ConfigError: if there is no file system for the URL, or its package is not installed.
        """
        self._remote = Remote(url)
        self.url = self._remote.url

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self._remote.name

    def is_run(self) -> bool:
        """Whether there is a `run.json` or rows below the URL; raises `OSError` where it cannot be asked."""
        whole = metrics_name(0)
        return not {MANIFEST, whole, whole.removesuffix(".jsonl")}.isdisjoint(self._remote.children())

    def read(self, name: str, limit: int) -> bytes:
        """Return the object *name*.

        Raises:
            FileNotFoundError: if there is none.
            OSError: if it cannot be read, or has more than *limit* bytes.
        """
        data = self._remote.get(name, limit)
        if len(data) > limit:
            raise OSError(errno.EFBIG, f"it has more than {limit} bytes")
        return data

    def ranks(self) -> list[int]:
        """Return the ranks of the processes that have written rows; raises `OSError` where it cannot be asked."""
        names = self._remote.children()
        folders = [f"{name}/00000001.jsonl" for name in names if not name.endswith(".jsonl")]
        return sorted(ranks_in([*names, *folders]))

    def source(
        self, rank: int = 0, *, kind: str = METRICS, missing_ok: bool = False, others_ok: bool = False
    ) -> Source:
        """Return the rows of process *rank*, or other lines of it, as they are there now.

        Args:
            rank: The process's rank.
            kind: Which lines, such as "events".
            missing_ok: Whether a run without rows has none, and is not an error.
            others_ok: The same for one in which other processes have rows.

        Raises:
            FileNotFoundError: if there are none.
            OSError: if the store cannot be asked.
        """
        whole = lines_name(kind, rank)
        folder = whole.removesuffix(".jsonl")
        listing = self._remote.listing(folder)
        with contextlib.suppress(FileNotFoundError):  # as nearly always: it is there in a copy of a directory
            listing[whole] = self._remote.size(whole)
        segments = segments_in(listing, rank, kind)
        if not segments and not missing_ok and not (others_ok and self.ranks()):
            raise FileNotFoundError(errno.ENOENT, "there are no rows of a run", self.url)
        return Source(Path(whole), stored=Segments(self._remote, segments), others=self.others)

    def others(self) -> dict[int, Callable[[], Source]]:
        """Find the rows of all processes; raises `OSError` where it cannot be asked."""
        return {rank: partial(self.source, rank) for rank in self.ranks()}


def source_of(url: str, *, missing_ok: bool = False, others_ok: bool = False) -> Source:
    """Return the rows of the primary process of the run at *url*, or those in the one file of rows that it names.

    Raises:
        FileNotFoundError: if there are none.
        OSError: if the store cannot be asked.
        ConfigError: if there is no file system for the URL, or its package is not installed.
    """
    if not url.rstrip("/").endswith(".jsonl"):
        return RemoteRun(url).source(missing_ok=missing_ok, others_ok=others_ok)
    folder, _, name = url.rstrip("/").rpartition("/")
    remote = Remote(folder)
    segment = Segment(name, remote.size(name))
    return Source(Path(name), stored=Segments(remote, [segment]), others=RemoteRun(folder).others)


def run_urls(url: str) -> list[str]:
    """Return the URLs of what may be runs in the folder *url*, sorted; read their `run.json` to see whether they are.

    Raises:
        OSError: if the store cannot be asked.
        ConfigError: if there is no file system for the URL, or its package is not installed.
    """
    remote = Remote(url)
    return [f"{remote.url}/{name}" for name in remote.children()]
