# ruff: noqa: INP001, T201, S603 - a script, which says what it has measured, and runs pip
"""What each extra costs: megabytes to download, seconds to install without the download, megabytes on the disk.

    python docs/tools/install_figures.py              all extras, which takes some minutes
    python docs/tools/install_figures.py cli s3       these

Each is installed into a fresh environment in a temporary folder. Megabytes are those beyond trackway alone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
MEGABYTE = 1e6


class Cost(NamedTuple):
    """What an installation costs."""

    download: float
    seconds: float
    disk: float


def extras() -> list[str]:
    """Return the names of the extras."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return sorted(content["project"]["optional-dependencies"])


def measure(extra: str, wheel: Path, scratch: Path) -> Cost:
    """Install *wheel* with *extra*, or without one where that is empty, in the empty folder *scratch*."""
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    wheels, environment = scratch / "wheels", scratch / "venv"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    packages = next((environment / "lib").glob("python*/site-packages"))
    before = size(packages)
    pip(python, "download", "--dest", wheels, wanted)
    begun = time.perf_counter()
    pip(python, "install", "--no-index", "--find-links", wheels, wanted)
    return Cost(size(wheels), time.perf_counter() - begun, size(packages) - before)


def pip(python: Path, *arguments: str | Path) -> None:
    """Run pip quietly; raises `CalledProcessError` where it fails."""
    command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def size(folder: Path) -> float:
    """Return the megabytes of the files in *folder*, at every depth."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / MEGABYTE


def row(extra: str, cost: Cost, core: Cost) -> str:
    """Return a line of the table."""
    beyond = Cost(cost.download - core.download, cost.seconds, cost.disk - core.disk) if extra else cost
    name = f"`trackway[{extra}]`" if extra else "`trackway`"
    return f"| {name} | {beyond.download:.0f} | {beyond.disk:.0f} | {beyond.seconds:.0f} |"


def main() -> None:
    """Print the table, a line as soon as it is known."""
    wanted = sys.argv[1:] or extras()
    with tempfile.TemporaryDirectory(prefix="trackway-install-") as folder:
        place = Path(folder)
        pip(Path(sys.executable), "wheel", "--no-deps", "--wheel-dir", place / "own", ROOT)
        (wheel,) = (place / "own").glob("*.whl")
        print("| | MB to download | MB installed | seconds to install |\n|---|---:|---:|---:|", flush=True)
        core = Cost(0, 0, 0)
        for extra in ["", *wanted]:
            scratch = place / (extra or "core")
            scratch.mkdir()
            cost = measure(extra, wheel, scratch)
            core = core if extra else cost
            print(row(extra, cost, core), flush=True)
            shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
