"""The names of `trackway.events._text`, for whoever imports them from here."""

from __future__ import annotations

from trackway.events._text import error_text, pairs_text, value_text

__all__ = ["error_text", "pairs_text", "value_text"]
