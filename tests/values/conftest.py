"""What tests of values share."""

from __future__ import annotations

import pytest

from trackway.values import _secret_values, set_redaction


@pytest.fixture
def default_policy():
    """Have secrets replaced as they are by default, none learnt yet; restored and forgotten at the end."""
    before = set_redaction(True)
    _secret_values._learnt.clear()
    yield
    _secret_values._learnt.clear()
    set_redaction(before)
