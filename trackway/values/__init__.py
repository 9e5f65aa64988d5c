"""What can be logged, and what becomes of it.

`normalise` turns a mapping of any values into a `Row`, a dict of plain ones, once; every tracker receives that row:

>>> import numpy as np
>>> from trackway.values import decode, encode, flatten, normalise
>>> row = normalise({"loss": np.float32(0.5), "grad": {"norm": float("inf")}, "stage": ("warm", "up")})
>>> row
{'loss': 0.5, 'grad': {'norm': inf}, 'stage': ['warm', 'up']}
>>> flatten(row)["grad/norm"]
inf
>>> decode(encode(row)) == row
True

| given | in the row |
|---|---|
| None, bool, int, float, str | itself: ints of any length, NaN and infinities too |
| an array of one element, of any library, rank and width | the number; complex: `{"real": ..., "imag": ...}` |
| a larger array | nested lists; text, dates, objects and fields of structured arrays by the rules for each |
| an array on a device, still being computed | a `Pending`, until `resolve` |
| mapping, dataclass, pydantic model, attrs class, named tuple | a dict, nested as given |
| list, tuple, set (sorted), deque | a list |
| range, iterator (consumed), sequence that makes its items when asked | a list, at most 10,000 items |
| Enum | its value |
| datetime, date, time, `datetime64` | ISO text |
| timedelta, `timedelta64` | seconds |
| Decimal, Fraction | an int if whole, else the nearest float |
| Path, UUID | text |
| bytes | text if UTF-8, else `base64:` and the code |
| class, function, module, dtype | its name |
| `Histogram`, `Image`, `Audio`, `Table`, `Text`, `Html` | itself |
| integer of more than 10,000 digits | a text that says how many |
| name that means something in files, see `normalise` | the name with `_` at its end |
| text that is a secret by its name or form | a mark such as `<redacted sha256:1a2b3c4d>`, see `RedactionPolicy` |
| anything else; what contains itself; after 64 levels or a million values | a text of at most 500 characters |

What the last lines speak of, and whatever fails on the way, is a `Downgrade`: it is listed in `Row.downgrades`, warned
about once for each name, and costs no other value. Only a traced JAX value raises (`TracerError`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trackway._lazy import lazily
from trackway.values._histogram import Histogram, register_pytrees
from trackway.values._normalise import LoggableValue, normalise, to_plain
from trackway.values._pending import Pending
from trackway.values._redact import RedactionPolicy, redacted_text, redaction_policy, set_redaction
from trackway.values._row import Downgrade, Row, flatten, resolve

if TYPE_CHECKING:
    from trackway.values._documents import Html, Table, Text
    from trackway.values._json import decode, encode
    from trackway.values._media import Audio, Image

__all__ = [
    "Audio",
    "Downgrade",
    "Histogram",
    "Html",
    "Image",
    "LoggableValue",
    "Pending",
    "RedactionPolicy",
    "Row",
    "Table",
    "Text",
    "decode",
    "encode",
    "flatten",
    "normalise",
    "redacted_text",
    "redaction_policy",
    "register_pytrees",
    "resolve",
    "set_redaction",
    "to_plain",
]

# not needed to log a number: found when asked for, so that importing a configuration stays quick
_LATER = {
    **dict.fromkeys(("Html", "Table", "Text"), "_documents"),
    **dict.fromkeys(("decode", "encode"), "_json"),
    **dict.fromkeys(("Audio", "Image"), "_media"),
}

__getattr__ = lazily(__name__, {name: f"{__name__}.{module}" for name, module in _LATER.items()})
