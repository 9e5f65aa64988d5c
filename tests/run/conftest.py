"""What the tests of the run share."""

from __future__ import annotations

import pytest

from trackway.run import Run
from trackway.store import LocalTracker
from trackway.testing import RecordingTracker


@pytest.fixture
def recorder():
    """A tracker that keeps what it gets."""
    return RecordingTracker()


@pytest.fixture
def run(tmp_path, recorder):
    """A run in a directory, with the recorder as its one other tracker."""
    with Run([recorder], LocalTracker(tmp_path / "run")) as run:
        yield run
