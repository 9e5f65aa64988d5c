"""Copies of artifacts that wait for a tracker in the background, so that the caller may delete the originals."""

from __future__ import annotations

import os
from pathlib import Path
from typing import final

from trackway.tracker._dispatch import Call

__all__ = ["Staging"]


@final
class Staging:
    """A temporary folder of artifacts, each in a folder of its own so that equal names do not meet."""

    def __init__(self) -> None:
        self._root: str | None = None
        self._folders: dict[int, Path] = {}

    def staged(self, call: Call) -> Call:
        """Return the `log_artifact` *call* with its path replaced by that of a copy, and its name kept.

        Paths that are no local files (URLs) and files that do not exist are left to the tracker as they are.

        Raises:
            OSError: if the copy cannot be made.
        """
        path = call.args[0] if call.args else call.kwargs.get("artifact_path")
        source = Path(os.path.abspath(path)) if isinstance(path, (str, os.PathLike)) else None  # noqa: PTH100 - keeps links
        if source is None or not source.exists():
            return call
        kwargs = {key: value for key, value in call.kwargs.items() if key != "artifact_path"}
        kwargs["name"] = kwargs.get("name") or source.name
        folder, copy = self._copy(source)
        staged = Call(call.method, (str(copy), *call.args[1:]), kwargs)
        self._folders[id(staged)] = folder
        return staged

    def _copy(self, source: Path) -> tuple[Path, Path]:
        import shutil
        import tempfile

        if self._root is None:
            self._root = tempfile.mkdtemp(prefix="trackway-artifacts-")
        folder = Path(tempfile.mkdtemp(dir=self._root))
        target = folder / "artifact"  # not its own name, which the tracker is told: that may be too long or odd
        try:
            if source.is_dir():
                shutil.copytree(source, target)
            else:
                shutil.copy2(source, target)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return folder, target

    def release(self, call: Call) -> None:
        """Delete the copy made for *call*, if any."""
        folder = self._folders.pop(id(call), None)
        if folder is not None:
            import shutil

            shutil.rmtree(folder, ignore_errors=True)

    def clear(self) -> None:
        """Delete everything."""
        if self._root is not None:
            import shutil

            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None
