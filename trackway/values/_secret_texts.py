"""Secrets in texts: what can be recognised by its form, and what a name before it gives away.

Loaded with the first text that is looked at: numbers need none of it. Each pattern takes time in proportion to the text
only, whatever the text is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

from trackway.values._secret_names import CHOICES, Suspicion

__all__ = ["is_mark", "is_named_secret", "mark", "without_assigned", "without_known", "without_recognisable"]

_MARK = re.compile(r"<redacted(?: sha256:[0-9a-f]{8})?>|redacted(?:-[0-9a-f]{8})?")  # the latter in names of files
_LONG = 20
_VARIED = 10
_RUN = 12
_KEY_FILE = 100  # a private key is written in lines

Name = Callable[[str], Suspicion]


def mark(secret: str) -> str:
    """Return what stands in the place of *secret*; nothing in place of a mark.

    The fingerprint has no salt, so that runs can be compared with each other. It is therefore left out where the secret
    could be found by trying: there it would tell who reads it whether a guess is right.
    """
    if _MARK.fullmatch(secret):
        return secret
    if is_guessable(secret):
        return "<redacted>"
    digest = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
    return f"<redacted sha256:{digest[:8]}>"


def is_mark(text: str) -> bool:
    """Tell whether *text* is what `mark` returns."""
    return _MARK.fullmatch(text) is not None


def is_guessable(secret: str) -> bool:
    """Tell whether *secret* may be of the kind that people think of, as opposed to one made at random."""
    return (
        len(secret) < _LONG
        or len(set(secret)) < _VARIED
        or (len(secret) < _KEY_FILE and any(map(str.isspace, secret)))
        or not (any(map(str.isdigit, secret)) and any(map(str.isalpha, secret)))
    )


# --- what stands under a name that looks secret ---------------------------------------------------------------------

_NOTHING = frozenset({"", "none", "null", "nil", "true", "false", "yes", "no", "default", "..."})
_REFERENCE = re.compile(r"\$\{(?:oc\.env:|env:)?[A-Za-z_][A-Za-z0-9_.]*\}|\$[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|[*•]+")
_AMOUNT = re.compile(r"\d{1,3}|[+-]?\d+\.\d+(?:[eE][+-]?\d+)?|\d+/\d+|\d+(?:\.\d+)?%")
_VOCABULARY = re.compile(r"[<\[{|].*[>\]}|]", re.DOTALL)


def is_named_secret(text: str, sure: Suspicion, name: str = "") -> bool:
    """Tell whether *text*, under a name of which *sure* is said, is a secret; empty texts and references are none."""
    if sure is Suspicion.NONE or text.strip().lower() in _NOTHING or _MARK.fullmatch(text):
        return False
    if _REFERENCE.fullmatch(text):
        return False
    if sure is Suspicion.STRONG:
        return True
    if name.lower().endswith("pwd") and text.startswith(("/", "~", ".")):  # the working directory
        return False
    if _AMOUNT.fullmatch(text) or text.lower() in CHOICES:
        return False
    return not (any(map(str.isspace, text)) or _VOCABULARY.fullmatch(text))


# --- what is recognised whatever it stands under --------------------------------------------------------------------


def _is_random(text: str) -> bool:
    """Whether *text* looks like one made by a machine: words have neither digits nor capitals in their midst."""
    return any(c.isdigit() or c.isupper() for c in text)


def _dashed(match: re.Match[str]) -> str:
    text = match[0]
    parts = re.split(r"[-_]", text)
    return mark(text) if max(map(len, parts)) >= _RUN and any(map(str.isdigit, text)) else text


def _prefixed(match: re.Match[str]) -> str:
    return mark(match[0]) if _is_random(match[0].partition("_")[2] or match[0]) else match[0]


def _login(match: re.Match[str]) -> str:
    """The part of a URL before the `@`: the user stays, the password goes, and a user that is a token."""
    user, colon, password = match[2].partition(":")
    return f"{match[1]}{_user(user)}{colon}{mark(password) if password else ''}@"


def _user(user: str) -> str:
    if _MARK.fullmatch(user) or len(user) < _LONG or not any(map(str.isdigit, user)):
        return user
    return mark(user)


def _after_first(match: re.Match[str]) -> str:
    return match[1] + (mark(match[2]) if _is_random(match[2]) else match[2])


def _whole(match: re.Match[str]) -> str:
    return mark(match[0])


def _tail(match: re.Match[str]) -> str:
    return match[1] + mark(match[2])


_B = r"(?<![A-Za-z0-9])"
_RECOGNISED: tuple[tuple[tuple[str, ...], re.Pattern[str], Callable[[re.Match[str]], str]], ...] = tuple(
    (hints, re.compile(pattern, flags), change)
    for hints, pattern, flags, change in (
        (
            ("private key",),
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]{0,50}-----|\Z)",
            re.DOTALL,
            _whole,
        ),
        ((":/",), r"(:/{1,2})([^\s/?#\"'<>]*)@", 0, _login),  # one slash: a path that is made of it
        (("sk-",), _B + r"sk-[A-Za-z0-9_-]{16,}", 0, _dashed),
        (("hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "npm_", "glsa_"),
         _B + r"(?:hf|gh[pousr]|npm|glsa)_[A-Za-z0-9]{16,}", 0, _prefixed),
        (("github_pat_", "wandb_v"), _B + r"(?:github_pat|wandb_v\d+)_[A-Za-z0-9_]{20,}", 0, _whole),
        (("k_live_", "k_test_"), _B + r"[srp]k_(?:live|test)_[A-Za-z0-9]{10,}", 0, _whole),
        (("akia", "asia"), r"(?<![A-Z0-9])A(?:KI|SI)A[A-Z0-9]{16}(?![A-Z0-9])", 0, _whole),
        (("aiza",), _B + r"AIza[A-Za-z0-9_-]{35}", 0, _whole),
        (("ya29.",), _B + r"ya29\.[A-Za-z0-9_-]{20,}", 0, _whole),
        (("glpat-", "pypi-", "xox", "xapp-"), _B + r"(?:glpat-|pypi-AgE|xox[a-z]-|xapp-)[A-Za-z0-9_-]{10,}", 0, _whole),
        (("dapi",), _B + r"dapi[0-9a-f]{32}", 0, _whole),
        (("sg.",), _B + r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}", 0, _whole),
        (("eyj",), _B + r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}", 0, _whole),
        (("bearer",), r"\b(bearer\s{1,4})([A-Za-z0-9._~+/=-]{16,})", re.IGNORECASE, _after_first),
        (
            ("hooks.slack.com", "/api/webhooks/", "/webhook", "api.telegram.org"),
            r"((?:hooks\.slack\.com/[a-z]+/|/api/webhooks/|/webhookb2/|api\.telegram\.org/bot))([A-Za-z0-9_/@.:-]{10,})",
            0,
            _tail,
        ),
    )
)  # fmt: skip
_ANY_HINT = re.compile("|".join(re.escape(hint) for hints, _, _ in _RECOGNISED for hint in hints))


def without_recognisable(text: str) -> str:
    """Return *text* with a mark in place of each secret that its form gives away."""
    small = text.lower()
    if _ANY_HINT.search(small) is None:
        return text
    for hints, pattern, change in _RECOGNISED:
        if any(hint in small for hint in hints):
            text = pattern.sub(change, text)
    return text


def without_known(text: str, secrets: tuple[str, ...]) -> str:
    """Return *text* with a mark in place of each of *secrets*; what may be a word is not looked for within others."""
    for secret in secrets:
        if secret not in text:
            continue
        if secret.isalpha() and secret.islower():
            text = re.sub(rf"(?<![A-Za-z0-9]){secret}(?![A-Za-z0-9])", lambda match: mark(match[0]), text)
        else:
            text = text.replace(secret, mark(secret))
    return text


# --- names and values within a text ---------------------------------------------------------------------------------

_HINTS = re.compile("pass|pw|secret|token|key|cred|auth|dsn|cookie|jwt|bearer|conn|sig|webhook")
_NAMED = re.compile(
    r"""(?P<start>(?<![A-Za-z0-9_.\-])(?P<dash>--?)?(?P<open>\\?["'])?(?P<name>[A-Za-z_][A-Za-z0-9_.\-]{0,80})\\?["']?)"""
    r"""(?P<between>[ \t]{0,3}(?:=>|:=|==|=|:)[ \t]{0,3}|(?(dash)[ \t]{1,3}|(?!)))"""
)
_VALUE = re.compile(
    r"""(?P<before>(?:(?:Bearer|Basic|Token|Digest)[ \t]{1,3})?"""
    r"""(?:(?:[A-Za-z_][A-Za-z0-9_.]{0,60}\()?[bru]{0,2}(?=\\?["']))?)"""
    r"""(?P<value>"(?:[^"\\\n]|\\.){1,4000}"|'(?:[^'\\\n]|\\.){1,4000}'|\\"[^"\\\n]{1,4000}\\"|[^\s"'&,;)\]}\\]+)""",
    re.IGNORECASE,
)
_SIGNATURES = frozenset({"sig", "signature", "x-amz-signature", "x-goog-signature"})
_SHORT = 8
_RESCAN = 4000


def without_assigned(text: str, name: Name, *, also: bool = False, command: bool = False) -> str:
    """Return *text* with a mark in place of each value that a name which looks secret is given.

    Args:
        text: The text.
        name: Tells what is to be thought of a name.
        also: Whether *name* knows names of the user's own, so that no text can be left aside for its words.
        command: Whether the text comes from a command line, where less is prose.
    """
    if not also and _HINTS.search(text.lower()) is None:
        return text
    parts: list[str] = []
    done = at = 0
    while (named := _NAMED.search(text, at)) is not None:
        at = named.end("name")  # what is no value may be a name
        sure = _sure(named, name)
        value = _VALUE.match(text, named.end()) if sure else None
        if value is None:
            continue
        changed = _replaced(named, value, sure, command=command)
        if changed is not None:
            parts += text[done : named.end()], changed
            done = at = value.end()
        elif len(value[0]) > _RESCAN:
            at = value.end()
    return "".join((*parts, text[done:])) if parts else text


def _sure(named: re.Match[str], name: Name) -> Suspicion:
    sure = name(named["name"])
    if sure is Suspicion.NONE and named["between"] == "=" and named["name"].lower() in _SIGNATURES:
        return Suspicion.WEAK
    return sure


def _replaced(named: re.Match[str], match: re.Match[str], sure: Suspicion, *, command: bool) -> str | None:
    raw = match["value"]
    quote = '\\"' if raw.startswith('\\"') else raw[0] if raw[0] in "\"'" else ""
    value = raw[len(quote) : len(raw) - len(quote)] if quote else raw
    if not is_named_secret(value, sure, named["name"]) or value.startswith("<redacted"):
        return None
    if not (command or _is_meant(named, value, sure, quoted=bool(quote))):
        return None
    return f"{match['before']}{quote}{mark(value)}{quote}"


def _is_meant(named: re.Match[str], value: str, sure: Suspicion, *, quoted: bool) -> bool:
    """Whether these are a name and its value, not prose such as `token: expected`."""
    between = named["between"]
    if not between.strip():
        return not value.startswith("-")  # the next flag
    if sure is Suspicion.STRONG and (quoted or named["open"] or "=" in between):
        return True
    odd = any(not character.isalpha() for character in value)
    return odd and (sure is Suspicion.STRONG or len(value) >= _SHORT)
