"""Tables and texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self, final

from trackway._notices import warn_once
from trackway.values._json import encode
from trackway.values._media_base import Media
from trackway.values._row import Downgrade, resolve_value
from trackway.values._text import type_name
from trackway.values._walk import Walk

__all__ = ["Html", "Table", "Text"]


@final
class Table(Media):
    """Rows of values under named columns.

    Args:
        columns: The names, one for each column.
        data: The rows, each with a value for each column. Values are made plain as in a row of metrics and copied.

    Raises:
        ValueError: If a row is longer or shorter than *columns*.
        TracerError: If a value is a traced JAX value.
    """

    __slots__ = ("columns", "data")

    columns: tuple[str, ...]
    """The names of the columns."""
    data: tuple[tuple[Any, ...], ...]
    """The rows, of plain values."""

    def __init__(self, columns: Iterable[Any], data: Iterable[Iterable[Any]]) -> None:
        if isinstance(columns, str):
            raise ValueError(f"Table: columns must be a sequence of names, got the text {columns!r}")  # noqa: TRY004
        self.columns = tuple(map(str, columns))
        self.data = tuple(_checked(row, self.columns, number) for number, row in enumerate(data))

    @classmethod
    def from_dataframe(cls, frame: Any) -> Self:
        """Return the table of a data frame: pandas (`itertuples`), polars (`rows`) or Arrow (`to_pylist`).

        Raises:
            ValueError: If *frame* has none of those.
        """
        if callable(itertuples := getattr(frame, "itertuples", None)):
            return cls(frame.columns, itertuples(index=False, name=None))
        if callable(rows := getattr(frame, "rows", None)):
            return cls(frame.columns, rows())
        if callable(to_pylist := getattr(frame, "to_pylist", None)):
            names = frame.column_names
            return cls(names, ([row[name] for name in names] for row in to_pylist()))
        raise ValueError(f"Table: a pandas, polars or Arrow table is expected, got {type_name(frame)}")

    def to_markdown(self) -> str:
        """Return it as a Markdown table."""
        lines = [self.columns, ["---"] * len(self.columns), *self.data]
        return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)

    def to_json(self) -> bytes:
        """Return it as a JSON object of `columns` and `data`, UTF-8; `trackway.values.decode` reads it."""
        return encode({"columns": self.columns, "data": self.data})

    def describe(self) -> dict[str, Any]:
        """Return type, columns and number of rows."""
        return {"_type": "table", "columns": list(self.columns), "rows": len(self.data)}

    def __repr__(self) -> str:
        return f"Table({len(self.data)} rows, columns={list(self.columns)!r})"


@final
class Text(Media):
    """A text to be read by people, in Markdown if the viewer shows it; a plain `str` is a value like a number.

    Raises:
        ValueError: If *text* is no `str`.
    """

    __slots__ = ("text",)

    text: str
    """The text."""

    def __init__(self, text: str) -> None:
        self.text = _text(text, "Text")

    def describe(self) -> dict[str, Any]:
        """Return type and text."""
        return {"_type": "text", "text": self.text}

    def redacted(self, change: Callable[[str], str]) -> Text:
        """Return it with *change* made to its text."""
        changed = change(self.text)
        return self if changed == self.text else Text(changed)

    def __repr__(self) -> str:
        return f"Text({len(self.text)} characters)"


@final
class Html(Media):
    """A page or fragment of HTML.

    Raises:
        ValueError: If *html* is no `str`.
    """

    __slots__ = ("html",)

    html: str
    """The source."""

    def __init__(self, html: str) -> None:
        self.html = _text(html, "Html")

    def describe(self) -> dict[str, Any]:
        """Return type and length in characters."""
        return {"_type": "html", "characters": len(self.html)}

    def redacted(self, change: Callable[[str], str]) -> Html:
        """Return it with *change* made to its source."""
        changed = change(self.html)
        return self if changed == self.html else Html(changed)

    def __repr__(self) -> str:
        return f"Html({len(self.html)} characters)"


def _checked(row: Iterable[Any], columns: Sequence[str], number: int) -> tuple[Any, ...]:
    cells = zip(columns, _wide(row, len(columns), number), strict=True)
    return tuple(_plain_cell(value, name) for name, value in cells)


def _plain_cell(value: Any, name: str) -> Any:
    walk = Walk()
    lost: list[Downgrade] = []
    plain = resolve_value(walk.plain(value, name), name, lost)
    for path, reason, _ in (*walk.downgrades, *lost):
        warn_once(("table", path), f"Table: a value of column {path!r} {reason}.")
    return plain


def _wide(row: Iterable[Any], width: int, number: int) -> tuple[Any, ...]:
    cells = () if isinstance(row, str) else tuple(row)
    if len(cells) != width:
        got = "a text" if isinstance(row, str) else f"{len(cells)} values"
        raise ValueError(f"Table: row {number} must have {width} values, one for each column, got {got}")
    return cells


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else encode({"v": value}).decode("utf-8", "replace")[5:-1]
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\r", "").replace("\n", "<br>")


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{what}: a str is expected, got {type_name(value)}; use str(value)")  # noqa: TRY004
    return str.__str__(value)
