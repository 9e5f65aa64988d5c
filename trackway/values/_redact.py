"""Secrets are replaced by marks before anything is kept or sent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any, final

from trackway.errors import ConfigError
from trackway.values._secret_names import Suspicion, segments, suspicion

__all__ = [
    "RedactionPolicy",
    "current_policy",
    "holds_mark",
    "holds_secret",
    "redacted_command",
    "redacted_name",
    "redacted_text",
    "redaction_policy",
    "set_redaction",
]

_SHORTEST = 8
_MAX_NAMES = 4096
_ENDING = 12
_PASSES = 8  # a secret may come to light when the one beside it is gone
_FINGERPRINT = "<redacted sha256:"
_MARK = re.compile(r"<redacted(?: sha256:[0-9a-f]{8})?>")


@final
@dataclass(frozen=True)
class RedactionPolicy:
    """What is replaced by a mark, such as `<redacted sha256:1a2b3c4d>`, before it is kept or sent anywhere.

    An entry of `keep` and `also` is a name, at any depth, or names joined with `.` that follow each other, such as
    `model.token`; it holds for what lies below as well. `*`, `?` and `[...]` are wildcards; capitals do not matter, and
    `-` is `_`. Names of environment variables are names too. Safe to share between threads.

    Attributes:
        enabled: False replaces nothing.
        keep: Names whose values are kept as they are, though they look secret.
        also: Names whose values are replaced, though they do not.

    Raises:
        ConfigError: if an attribute has a value of another type.
    """

    enabled: bool = True
    keep: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    _names: dict[str, Suspicion | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.enabled, bool):
            raise ConfigError(f"redact.enabled must be true or false, got {self.enabled!r}")
        for name in ("keep", "also"):
            object.__setattr__(self, name, _entries(name, getattr(self, name)))

    def suspicion(self, path: str) -> Suspicion | None:
        """Return what the names of *path*, joined with `/` or `.`, say of the value; None for one to be kept."""
        if not (self.keep or self.also):
            return suspicion(path)
        if path not in self._names:
            if len(self._names) >= _MAX_NAMES:
                self._names.clear()
            self._names[path] = self._judged(path)
        return self._names[path]

    def _judged(self, path: str) -> Suspicion | None:
        names = [_folded(name) for name in segments(path)]
        if _stands_in(self.keep, names):
            return None
        return Suspicion.STRONG if _stands_in(self.also, names) else suspicion(path)

    def value(self, path: str, text: str) -> str:
        """Return *text*, the value of the name *path*, or a mark in its place or within it."""
        sure = self.suspicion(path) if self.enabled else None
        if sure is None:
            return text
        if sure is not Suspicion.NONE:
            from trackway.values._secret_texts import is_named_secret, mark
            from trackway.values._secret_values import learn

            if is_named_secret(text, sure, path):
                learn(text)
                return mark(text)
        return self.text(text) if len(text) >= _SHORTEST else text

    def text(self, text: str, *, command: bool = False) -> str:
        """Return *text* with marks in place of the secrets in it: of an error, an alert, a page.

        Args:
            text: Any text.
            command: Whether it comes from a command line, where what follows a name that looks secret is no prose.
        """
        if not self.enabled or len(text) < _SHORTEST:
            return text
        for _ in range(_PASSES):
            changed = self._pass(text, command=command)
            if changed == text:
                break
            text = changed
        return text

    def _pass(self, text: str, *, command: bool) -> str:
        from trackway.values import _secret_texts as texts
        from trackway.values._secret_values import known_secrets

        changed = texts.without_assigned(text, self._of_name, also=bool(self.also), command=command)
        changed = texts.without_known(changed, known_secrets(self))
        return texts.without_recognisable(changed)

    def _of_name(self, name: str) -> Suspicion:
        return self.suspicion(name) or Suspicion.NONE

    def command(self, arguments: Sequence[Any]) -> list[str]:
        """Return the words of a command line with marks in place of the secrets in them."""
        if not self.enabled:
            return list(map(str, arguments))
        words: list[str] = []
        flag = ""
        for word in map(str, arguments):
            words.append(self._word(word, flag))
            flag = word.lstrip("-+") if word[:1] == "-" and "=" not in word else ""
        return words

    def _word(self, word: str, flag: str) -> str:
        if flag and not re.fullmatch("-.|--.*", word) and (changed := self.value(flag, word)) != word:
            return changed
        name, sign, value = word.partition("=")
        if sign and value and self._of_name(name.lstrip("-+~")):
            return f"{name}={self.value(name.lstrip('-+~'), value)}"
        return self.text(word, command=True)

    def number(self, path: str, value: Any) -> Any:
        """Return *value*, what a hyper-parameter became; below a name that surely is secret without its numbers."""
        if not self.enabled or type(value) is str or self.suspicion(path) is not Suspicion.STRONG:
            return value
        return _numberless(value)


def _numberless(value: Any) -> Any:
    if type(value) is int or type(value) is float:
        return "<redacted>"
    if type(value) is list:
        return [_numberless(item) for item in value]
    return {key: _numberless(item) for key, item in value.items()} if type(value) is dict else value


def _entries(name: str, given: Any) -> tuple[str, ...]:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Sequence | set | frozenset):
        raise ConfigError(f'redact.{name} must be a list of names such as ["model.token"], got {given!r}')
    for entry in given:
        if not isinstance(entry, str) or not segments(entry):
            raise ConfigError(f'redact.{name}: an entry is a name such as "model.token", got {entry!r}')
    return tuple(given)


def _folded(name: str) -> str:
    return name.lower().replace("-", "_")


def _stands_in(entries: tuple[str, ...], names: list[str]) -> bool:
    for entry in entries:
        wanted = [_folded(part) for part in segments(entry)]
        for start in range(len(names) - len(wanted) + 1):
            if all(map(fnmatchcase, names[start:], wanted)):
                return True
    return False


_policy = RedactionPolicy()


def current_policy() -> RedactionPolicy:
    """Return the policy in force."""
    return _policy


def redaction_policy(value: Any = None) -> RedactionPolicy:
    """Return the policy that *value*, the field `redact` of a configuration, stands for.

    Args:
        value: A policy; None for the one in force; True for the default one; False for none of it; or a mapping with
            `keep`, `also` and `enabled`, see `RedactionPolicy`.

    Raises:
        ConfigError: if it is something else, or a field has a wrong name or type.
    """
    if value is None:
        return _policy
    if isinstance(value, RedactionPolicy):
        return value
    if isinstance(value, bool):
        return RedactionPolicy(enabled=value)
    if not isinstance(value, Mapping):
        raise ConfigError(
            'redact must be true, false, or a mapping such as {keep: ["model.token"], also: ["badge"]}, '
            f"got {value!r} ({type(value).__name__})"
        )
    allowed = [one.name for one in fields(RedactionPolicy) if one.init]
    for name in value:
        if name not in allowed:
            import difflib

            close = difflib.get_close_matches(str(name), allowed, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError(f"redact: {name!r} is not one of {', '.join(allowed)}{hint}")
    return RedactionPolicy(**value)


def set_redaction(value: Any = None) -> RedactionPolicy:
    """Make a policy the one in force, for the whole process and what is logged from now on; return the one before.

    ```python
    before = set_redaction({"keep": ["model.token"]})
    ```

    Args:
        value: What `redaction_policy` takes.

    Raises:
        ConfigError: as `redaction_policy`; the policy in force stays.
    """
    global _policy
    before, _policy = _policy, redaction_policy(value)
    return before


def redacted_text(text: str) -> str:
    """Return *text* with marks in place of the secrets in it, by the policy in force; never raises."""
    return _policy.text(text)


def holds_mark(text: str) -> bool:
    """Whether *text* has a mark in it that stands in the place of a secret."""
    return _MARK.search(text) is not None


def holds_secret(text: str) -> bool:
    """Tell whether there is a secret in *text*, a file of code say; guessable ones, as in examples, do not count."""
    return _policy.text(text).count(_FINGERPRINT) > text.count(_FINGERPRINT)


def redacted_command(arguments: Sequence[Any]) -> list[str]:
    """Return a command line, such as `sys.argv`, with marks in place of secrets, by the policy in force."""
    return _policy.command(arguments)


def redacted_name(name: str) -> str:
    """Return the name of an artifact with marks in place of secrets, of characters that names may have."""
    stem, dot, ending = name.rpartition(".")
    if not dot or len(ending) > _ENDING:  # no kind of file, but a part of the name
        stem, dot, ending = name, "", ""
    changed = _policy.text(stem)
    if changed == stem:
        return name
    return re.sub(r"<(redacted)(?: sha256:([0-9a-f]{8}))?>", _in_a_name, changed) + dot + ending


def _in_a_name(match: re.Match[str]) -> str:
    return "-".join(part for part in match.groups() if part)
