"""Alerts by way of the services that `apprise` knows: chats, mail, pagers, webhooks.

The URL of such a service holds its password or token: it comes from the environment, and no message shows it.
"""

from __future__ import annotations

import contextlib
import contextvars
import html
import logging
import os
import re
from collections.abc import Iterator
from typing import Any, final
from urllib.parse import unquote

from trackway.alerts._message import safe
from trackway.alerts._rule import Alert
from trackway.alerts._suggest import did_you_mean
from trackway.errors import ConfigError, TrackwayError

__all__ = ["AppriseChannel", "NotTakenError", "check_variable"]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCHEMA = re.compile(r"([A-Za-z][A-Za-z0-9+]{0,15})://")
_TYPES = {"info": "INFO", "warning": "WARNING", "error": "FAILURE"}
_LOGGERS = ("apprise", "urllib3.connectionpool")
_said: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar("_said", default=None)
_SHORT = 4
_LIMIT = 300


class NotTakenError(TrackwayError):
    """A service did not take an alert."""


def check_variable(value: Any, path: str) -> str:
    """Return *value*, which stands at *path*, if it can be the name of an environment variable.

    Raises:
        ConfigError: if not; the value is not shown, because it may well be the URL itself.
    """
    if isinstance(value, str) and _VARIABLE.fullmatch(value):
        return value
    raise ConfigError(
        f"{path} must be the name of an environment variable that holds the URL of the service, such as TEAM_CHAT_URL; "
        "a URL with its password has no place in a configuration, which is stored with the run"
    )


@final
class AppriseChannel:
    """Sends alerts to the service whose URL is in an environment variable."""

    immediate = False

    def __init__(self, variable: str) -> None:
        """Read *variable* now; what it holds later does not matter.

        Raises:
            ConfigError: if the library is missing, the variable is not set, or it holds no URL of a service.
        """
        url = os.environ.get(variable, "").strip()
        if not url:
            raise ConfigError(
                f"alert channel {variable}: the environment variable {variable} is not set; it has to hold the URL of "
                "a service that apprise knows, such as mailto://... or slack://..."
            )
        self._secrets = _parts(url)
        self._service = _service(url, variable)

    def deliver(self, alert: Alert) -> None:
        """Send it, as plain text.

        Raises:
            NotTakenError: if the service cannot be reached, or does not take it.
        """
        try:
            with _listening() as said:
                taken = self._send(alert)
        except Exception as error:
            raise NotTakenError(self._without_secrets(f"{type(error).__name__}: {error}")) from None
        if not taken:
            reason = "; ".join(dict.fromkeys(said)) or "apprise gives no reason"
            raise NotTakenError(f"the service did not take it: {self._without_secrets(reason)}")

    def _send(self, alert: Alert) -> bool:
        """Call the service itself: `Apprise.notify` leaves that to a pool, which takes nothing once Python ends."""
        from apprise import NotifyType

        service, title, body = self._service, alert.title, alert.text or alert.title
        written = service.resolve_format("text") if hasattr(service, "resolve_format") else service.notify_format
        if getattr(written, "value", written) == "html":
            body = _as_html(body)
            title = title if service.title_maxlen > 0 else _as_html(title)  # where it becomes a part of the body
        kind = NotifyType.SUCCESS if alert.state == "recovered" else getattr(NotifyType, _TYPES[alert.level])
        return bool(service.notify(body=body, title=title, notify_type=kind, body_format=written))

    def _without_secrets(self, text: str) -> str:
        for part in self._secrets:
            text = text.replace(part, "***")
        return safe(text, _LIMIT)


def _service(url: str, variable: str) -> Any:
    try:
        import apprise
    except ImportError as error:
        raise ConfigError(
            f"alert channel {variable} needs the library apprise: pip install 'trackway[alerts]'"
        ) from error
    # in this thread, and keeping nothing on the disk
    asset = apprise.AppriseAsset(async_mode=False, secure_logging=True, storage_mode="memory")
    with _listening():
        service = apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
    if service is None:
        raise ConfigError(f"alert channel {variable}: {_wrong(url, variable)}")
    return service


def _wrong(url: str, variable: str) -> str:
    """Say what may be wrong with *url*, of which nothing but the name of the service can be shown."""
    from apprise import Apprise

    found = _SCHEMA.match(url)
    if found is None:
        return f"{variable} holds no URL (which is not shown); it has to begin with the name of a service and ://"
    schema = found[1].lower()
    known = {str(name) for service in Apprise().details()["schemas"] for name in _schemas(service)}
    if schema not in known:
        return f"apprise knows no service {schema}://{did_you_mean(schema, known)} (the URL in {variable} is not shown)"
    return (
        f"the {schema}:// URL in {variable} (which is not shown) is not one that apprise can use: a part is missing or "
        "malformed, or there is more than one URL"
    )


def _schemas(service: dict[str, Any]) -> Iterator[str]:
    yield from service.get("protocols") or ()
    yield from service.get("secure_protocols") or ()


def _parts(url: str) -> list[str]:
    """The parts of *url* that may be secret, longest first."""
    behind = url.partition("://")[2] or url
    pieces = {behind, *re.split(r"[/:@?&=,]", behind)}
    pieces |= {unquote(piece) for piece in pieces}
    return sorted((piece for piece in pieces if len(piece) >= _SHORT), key=len, reverse=True)


def _as_html(text: str) -> str:
    return html.escape(text).replace("\n", "<br/>\n")


@contextlib.contextmanager
def _listening() -> Iterator[list[str]]:
    """Collect what apprise logs in this context, in place of its logging it: that may show parts of a URL."""
    said: list[str] = []
    token = _said.set(said)
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_take)  # a second one of them is not added
    try:
        yield said
    finally:
        _said.reset(token)


def _take(record: logging.LogRecord) -> bool:
    said = _said.get()
    if said is None:
        return True
    if record.levelno >= logging.WARNING:
        said.append(record.getMessage())
    return False
