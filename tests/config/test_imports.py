"""What importing costs: which packages come along."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIBRARIES = ["jax", "torch", "tensorboardX", "tensorboard", "wandb", "trackio", "mlflow", "pandas"]


def imported_by(statement):
    """Names of the modules that are loaded once *statement* was executed in a new process."""
    program = f"import sys\n{statement}\nprint(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.split())


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        ("import trackway", [*LIBRARIES, "draccus", "fsspec", "yaml", "numpy"]),
        ("import trackway; trackway.log", [*LIBRARIES, "draccus", "fsspec", "yaml"]),
        ("from trackway.config import TrackerConfig", [*LIBRARIES, "fsspec", "importlib.metadata"]),
        ("from trackway.config import Trackers; Trackers([])", [*LIBRARIES, "fsspec"]),
        ("from trackway.config import TrackerConfig; TrackerConfig.get_known_choices()", LIBRARIES),
        ("from trackway.config import TrackerConfig; TrackerConfig.get_choice_class('tensorboard')()", LIBRARIES),
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(statement, forbidden):
    """No framework and no backend's library comes with the package, its configs, or the list of its types."""
    modules = imported_by(statement)
    assert "trackway" in modules
    assert modules & set(forbidden) == set()


DISABLED = """
import os
os.environ["{variable}"] = "{value}"
from trackway.config import TrackerConfig, Trackers
Trackers([TrackerConfig.get_choice_class("tensorboard")()]).build("run")
"""


@pytest.mark.parametrize(("variable", "value"), [("TRACKWAY_MODE", "disabled"), ("RANK", "1")])
def test_a_backend_that_is_off_does_not_import_its_library(variable, value):
    """Disabled, or on a rank that does not use it, a backend's library is not imported by build either."""
    modules = imported_by(DISABLED.format(variable=variable, value=value))
    assert "trackway.backends.tensorboard" in modules
    assert "tensorboardX" not in modules


def test_the_namespace_is_open_to_other_distributions(tmp_path):
    """A folder `trackway/backends` anywhere on the search path is part of the package of backends."""
    (tmp_path / "trackway" / "backends").mkdir(parents=True)
    program = (
        f"import sys; sys.path.append({str(tmp_path)!r}); import trackway.backends; print(trackway.backends.__path__)"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout
    assert str(tmp_path / "trackway" / "backends") in output
