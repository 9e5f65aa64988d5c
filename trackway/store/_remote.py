"""The objects of one run behind an fsspec URL."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, final

from trackway.errors import ConfigError
from trackway.store._atomic import replace_file

__all__ = ["Remote"]

_OBJECT_STORES = frozenset({"memory", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "tos"})
_EXTRAS = {"s3": "trackway[s3]", "s3a": "trackway[s3]", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}
_numbers = itertools.count()


@final
class Remote:
    """What lies below one URL; objects are named by their path from there. Thread-safe, not to be used after a fork.

    Whatever the file system raises that is no `OSError` comes out as one. Listings are never taken from a cache.

    Attributes:
        url: The URL, without a slash at its end.
    """

    def __init__(self, url: str) -> None:
        """Find the file system of *url*; nothing is asked of it yet.

        Raises:
            ConfigError: if there is none for it, or its package is not installed.
        """
        self.url = url.rstrip("/")
        protocol = url.partition("://")[0]
        from fsspec.core import url_to_fs

        try:
            fs, root = url_to_fs(self.url, use_listings_cache=False)
        except ImportError as error:
            package = _EXTRAS.get(protocol, "the package that fsspec names")
            raise ConfigError(f"local: {url!r} needs a package: {error}; try `pip install {package!r}`") from error
        except (ValueError, TypeError) as error:
            raise ConfigError(f"local: {url!r} is none that fsspec knows: {error}; one is s3://bucket/runs") from error
        names = (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)
        self._fs: Any = fs
        self._root = str(root).rstrip("/")
        self._is_local = "file" in names
        self._has_folders = not _OBJECT_STORES.intersection(names)

    def below(self, name: str) -> Remote:
        """Return what lies below *name*."""
        return Remote(f"{self.url}/{name}")

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self._root.rpartition("/")[2]

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def get(self, name: str, limit: int | None = None) -> bytes:
        """Return the object *name*, of a longer one than *limit* bytes the beginning and one byte more.

        Raises:
            FileNotFoundError: if there is none.
            OSError: if it cannot be read.
        """
        with _as_os_error():
            if limit is None:
                return bytes(self._fs.cat_file(self._path(name)))
            return bytes(self._fs.cat_file(self._path(name), start=0, end=limit + 1))

    def size(self, name: str) -> int:
        """Return how many bytes the object *name* has; raises as `get` does."""
        with _as_os_error():
            return int(self._fs.info(self._path(name))["size"])

    def get_all(self, objects: Sequence[tuple[str, int]]) -> list[bytes]:
        """Return several objects, given by name and size, which are fetched at the same time where that can be done.

        Raises:
            OSError: if one of them cannot be read.
        """
        filled = [(name, size) for name, size in objects if size]
        with _as_os_error():
            found = self._fs.cat_ranges(
                [self._path(name) for name, _ in filled], [0] * len(filled), [size for _, size in filled]
            )
        contents = dict(zip(filled, map(bytes, found), strict=True))
        return [contents.get(entry, b"") for entry in objects]

    def put(self, name: str, data: bytes, *, new: bool = False) -> None:
        """Store *data* as the object *name*; a reader sees the old one or the new one.

        Args:
            name: Its name.
            data: Its content.
            new: Refuse to replace an object, as far as the file system can: S3 and local files can, some cannot.

        Raises:
            FileExistsError: if *new*, and there is such an object.
            OSError: if it cannot be stored.
        """
        with _as_os_error():
            if self._is_local:
                _write(Path(self._path(name)), data, new=new)
                return
            try:
                self._pipe(name, data, new=new)
            except FileNotFoundError:  # of an object store: the bucket
                if not self._has_folders:
                    raise
                self._fs.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)
                self._pipe(name, data, new=new)

    def _pipe(self, name: str, data: bytes, *, new: bool) -> None:
        path = self._path(name)
        if not new:
            self._fs.pipe_file(path, data)
            return
        try:
            self._fs.pipe_file(path, data, mode="create")
        except (TypeError, NotImplementedError):
            if self._fs.exists(path):
                raise FileExistsError(path) from None
            self._fs.pipe_file(path, data)

    def put_file(self, name: str, path: Path, large: int = 1 << 23) -> None:
        """Store the file *path* as the object *name*; one of more than *large* bytes is never in memory as a whole."""
        if self._has_folders or path.stat().st_size <= large:
            self.put(name, path.read_bytes())
            return
        with _as_os_error():
            self._fs.put_file(str(path), self._path(name))

    def listing(self, folder: str = "") -> dict[str, int]:
        """Return the names of all objects below *folder*, at every depth, and their sizes; none where there is none."""
        with _as_os_error():
            self._fs.invalidate_cache(self._path(folder))
            try:
                found = self._fs.find(self._path(folder), detail=True)
            except FileNotFoundError:
                return {}
        names = ((path[len(self._root) + 1 :], info) for path, info in found.items() if path.startswith(self._root))
        return {name: int(info.get("size") or 0) for name, info in names if _is_safe(name)}

    def children(self, folder: str = "") -> list[str]:
        """Return the names of objects and folders right below *folder*, sorted; none where there is none."""
        path = self._path(folder)
        with _as_os_error():
            self._fs.invalidate_cache(path)
            try:
                found = self._fs.ls(path, detail=False)
            except (FileNotFoundError, NotADirectoryError):
                return []
        names = {str(item).rstrip("/").rpartition("/")[2] for item in found if str(item).rstrip("/") != path}
        return sorted(name for name in names if _is_safe(name))

    def remove(self, name: str) -> None:
        """Remove the object *name*, or all below the folder of that name; it may be gone already."""
        with _as_os_error(), contextlib.suppress(FileNotFoundError):
            self._fs.rm(self._path(name), recursive=True)


def _is_safe(name: str) -> bool:
    """Whether *name*, which anyone may have chosen, leads nowhere else as a path of this machine."""
    return "\0" not in name and all(part not in {"", ".", ".."} for part in name.split("/"))


@contextlib.contextmanager
def _as_os_error() -> Iterator[None]:
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error


def _write(path: Path, data: bytes, *, new: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not new:
        replace_file(path, data)
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{next(_numbers)}.new")
    try:
        replace_file(temporary, data)
        os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
