"""Install a built wheel into environments of its own, away from the source tree, and use it there.

    python tests/package/try_wheel.py dist/trackway-*.whl

Everything runs in a temporary folder with Python's `-P` flag, so that what is imported is what the wheel holds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

CORE = """
import sys
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import draccus
import trackway
from trackway import Histogram, Trackers
from trackway.store import read_rows
from trackway.testing import RecordingTracker

assert Path(trackway.__file__).is_relative_to(sys.prefix), trackway.__file__
assert files("trackway").joinpath("py.typed").is_file()
assert trackway.__version__ == __import__("importlib.metadata").metadata.version("trackway")

@dataclass
class Config:
    tracker: Trackers = field(default_factory=Trackers)

choices = "[{type: local}, {type: console}, {type: json_logger}, {type: noop}]"
config = draccus.parse(Config, args=["--tracker", choices])
with config.tracker.build("wheel"):
    trackway.log_configuration(config)
    for step in range(5):
        trackway.log({"loss": 1 / (step + 1), "weights": Histogram.from_array([1.0, 2.0])}, step=step)
    trackway.log_summary({"best": 0.2})
assert [row["_step"] for row in read_rows("runs/wheel")] == [0, 1, 2, 3, 4]
assert Path("runs/wheel/summary.json").is_file()
assert "jax" not in sys.modules
"""

WITHOUT_EXTRA = """
import draccus
from trackway import Trackers

try:
    draccus.decode(Trackers, {"type": "tensorboard"}).build("absent")
except ValueError as error:
    assert 'pip install "trackway[tensorboard]"' in str(error), error
else:
    raise AssertionError("a backend without its library was built")
"""

WITH_EXTRA = """
from pathlib import Path

import draccus
import trackway
from trackway import Trackers

with draccus.decode(Trackers, {"type": "tensorboard", "logdir": "tb"}).build("extra"):
    trackway.log({"loss": 0.5}, step=0)
assert list(Path("tb/extra").glob("events.out.tfevents.*"))
"""


def run(*command: str | Path, cwd: Path) -> None:
    """Run *command*; the first that fails shows what it wrote and ends the program."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TRACKWAY_"))}
    done = subprocess.run(command, cwd=cwd, env=clean, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    if done.returncode:
        sys.stdout.write(done.stdout.decode(errors="replace"))
        sys.exit("the wheel did not pass")


def main(wheel: Path) -> None:
    """Use the bare wheel, then the wheel with an extra."""
    with tempfile.TemporaryDirectory(prefix="trackway-wheel-") as folder:
        work = Path(folder)
        venv.create(work / "venv", with_pip=True)
        python = work / "venv" / "bin" / "python"
        install = [python, "-m", "pip", "--disable-pip-version-check", "install", "-qq"]
        run(*install, wheel, cwd=work)
        run(python, "-P", "-c", CORE, cwd=work)
        run(python, "-P", "-c", WITHOUT_EXTRA, cwd=work)
        run(*install, f"{wheel}[tensorboard]", cwd=work)
        run(python, "-P", "-c", WITH_EXTRA, cwd=work)
    sys.stdout.write(f"{wheel.name}: installs and works without the source tree\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
