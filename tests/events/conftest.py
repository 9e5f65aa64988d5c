"""A tracker that keeps spans."""

from __future__ import annotations

import pytest
from kept_spans import Spans

from trackway.tracker import current_tracker


@pytest.fixture
def kept():
    """Return the current tracker, which keeps spans."""
    with current_tracker(Spans()) as tracker:
        yield tracker
