"""A tracker that keeps spans."""

from __future__ import annotations

from trackway.testing import RecordingTracker


class Spans(RecordingTracker):
    """Keeps the spans that it is given."""

    def __init__(self):
        super().__init__()
        self.spans = []

    def log_span(self, span):
        """Append to `spans`."""
        self.spans.append(span)

    def paths(self):
        """Return the paths, in the order of the ends."""
        return [done.path for done in self.spans]
