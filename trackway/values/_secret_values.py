"""Secrets that the process itself holds, to be found wherever they stand in a text."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trackway.values._secret_names import Suspicion
from trackway.values._secret_texts import is_guessable, is_named_secret

if TYPE_CHECKING:
    from trackway.values._redact import RedactionPolicy

__all__ = ["known_secrets", "learn"]

_SHORTEST = 8
_MAX_LEARNT = 64
_MARKS = "<redacted sha256:"

_learnt: dict[str, None] = {}
_found: tuple[Any, ...] = (None, (), None, 0, ())


def learn(secret: str) -> None:
    """Look for *secret*, which stood under a name that says so, in every text from now on; the last ones are kept.

    One that may be a word is not looked for: it would make holes in texts that do not mean it.
    """
    if secret in _learnt or is_guessable(secret):
        return
    if len(_learnt) >= _MAX_LEARNT:
        _learnt.pop(next(iter(_learnt)), None)
    _learnt[secret] = None


def known_secrets(policy: RedactionPolicy) -> tuple[str, ...]:
    """Return the secrets in the environment, on the command line and learnt, the longest first."""
    global _found  # noqa: PLW0603 - found anew only when one of its sources has changed
    environment, arguments = _environment(), tuple(map(str, getattr(sys, "argv", ())))
    of, known_arguments, known_environment, learnt, secrets = _found
    last = next(reversed(_learnt), None)
    if of is policy and arguments == known_arguments and learnt == last and environment == known_environment:
        return secrets  # type: ignore[no-any-return]
    found = {*_of_environment(policy), *_of_arguments(policy, arguments), *_learnt}
    secrets = tuple(sorted((one for one in found if one not in _MARKS), key=len, reverse=True))
    _found = (policy, arguments, dict(environment), last, secrets)
    return secrets


def _environment() -> dict[Any, Any]:
    """What the environment holds, as it is kept: decoding it at each look would take most of the time."""
    kept = getattr(os.environ, "_data", None)
    return kept if type(kept) is dict else dict(os.environ)


def _of_environment(policy: RedactionPolicy) -> list[str]:
    return [value for name, value in list(os.environ.items()) if _is_secret(policy, name, value)]


def _of_arguments(policy: RedactionPolicy, arguments: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    for number, word in enumerate(arguments):
        name, sign, value = word.partition("=")
        if not sign and word[:1] == "-" and number + 1 < len(arguments):
            value = arguments[number + 1]
        if value and not value.startswith("--") and _is_secret(policy, name.lstrip("-+~"), value):
            found.append(value)
    return found


def _is_secret(policy: RedactionPolicy, name: str, value: str) -> bool:
    sure = policy.suspicion(name)
    if len(value) < _SHORTEST or not sure or not is_named_secret(value, sure, name):
        return False
    if sure is Suspicion.WEAK and value.isdecimal():
        return False
    return not (value.startswith(("/", "~", ".")) and _is_there(value))


def _is_there(path: str) -> bool:
    try:
        return Path(path).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False
