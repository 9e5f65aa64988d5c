"""`pass`, `auth` and `dsn`: words that name secrets, and other things as well."""

import sys

import pytest

from trackway.values import normalise, redacted_text
from trackway.values._redact import redacted_command
from trackway.values._secret_names import Suspicion, suspicion

pytestmark = pytest.mark.usefixtures("default_policy")
LONG = "q7Rz2mK9xW4vB8nT1pLd"
WEAK = (
    "pass", "PASS", "app_pass", "MY_SERVICE_PASS", "servicePass", "service-pass", "login.pass", "pass_old", "pass2",
    "auth", "AUTH", "registry_auth", "REDIS-AUTH", "npmAuth", "service/auth", "auth_value",
    "dsn", "DSN", "app_dsn", "logging.dsn",
)  # fmt: skip
STRONG = (
    "DB_PASS", "db_pass", "dbPass", "smtp_pass", "database.db_pass", "MYSQL_PASS",
    "BASIC_AUTH", "http_auth", "SENTRY_DSN", "sentryDsn", "POSTGRES_DSN", "database_dsn", "db-dsn",
)  # fmt: skip
HARMLESS = (
    "passes", "n_passes", "n_pass", "num_pass", "bypass", "by_pass", "passed", "passthrough", "pass_through", "passing",
    "pass_rate", "pass_at_1", "pass_at_k", "pass_count", "compass", "encompass", "forward_pass", "backward_pass",
    "low_pass", "high_pass", "bandPass", "tests_pass", "first_pass", "fusion_pass", "xla_pass", "passport",
    "password_file",
    "author", "authors", "authority", "authentic", "authenticated", "oauth", "auth_mode", "auth_type", "auth_method",
    "auth_url", "auth_provider", "auth_enabled", "SSH_AUTH_SOCK", "XAUTHORITY", "SSH_ASKPASS", "GIT_ASKPASS",
    "PASS_MAX_DAYS", "dsn_weight", "dsns", "dsn_env", "dsnet", "adsn",
)  # fmt: skip


@pytest.mark.parametrize("name", [*WEAK, *STRONG])
def test_words_that_name_a_secret(name):
    """A text below them is replaced in a configuration, on a command line, in a text and where it stands later."""
    assert suspicion(name) is (Suspicion.WEAK if name in WEAK else Suspicion.STRONG)
    assert LONG not in str(normalise({name: LONG, "later": f"of {LONG}"}, reserved=False))
    for words in ([f"--{name}", LONG], [f"--{name}={LONG}"], [f"{name}={LONG}"]):
        assert LONG not in str(redacted_command(["train.py", *words]))
    assert LONG not in redacted_text(f"{name.replace('/', '.')}={LONG}")


@pytest.mark.parametrize("name", HARMLESS)
def test_words_that_merely_contain_them(name):
    """Names that have such a word in them, or of which it is a part, stand for other things."""
    assert suspicion(name) is Suspicion.NONE
    assert normalise({name: "gpt2"}, reserved=False) == {name: "gpt2"}


@pytest.mark.parametrize("name", ["pass", "auth", "dsn"])
@pytest.mark.parametrize(
    "value",
    ["basic", "Kerberos", "scram-sha-256", "train", "forward", "none", "2", "12/100", "97.5%", "0.123456789", ""],
)
def test_choices_and_amounts_under_them_are_shown(name, value):
    """A method, a stage or a number is what these names have where they name no secret."""
    assert normalise({name: value}, reserved=False) == {name: value}
    assert redacted_command(["x", f"--{name}", value]) == ["x", f"--{name}", value]


@pytest.mark.parametrize("name", ["pass", "auth", "dsn", "my_pass"])
def test_numbers_and_structures_under_them_are_shown(name):
    """They are counts, weights and options, of which only texts may be secret."""
    values = {name: 3, "a": {name: 0.5}, "b": {name: {"mode": "fast", "on": True}}}
    assert normalise(values, reserved=False) == values


@pytest.mark.parametrize(
    "text",
    [
        "the first pass: 0.123456789 of it",
        "pass > 0.5 at step 3: pass = 0.123457",
        "tests pass: all of them",
        "auth: required",
        "author=somebody-of-note-1999 compass=north-northwest-22",
        "auth failed for bob",
        "a pass over the data",
    ],
)
def test_prose_about_them_stays(text):
    """Such as a message of an alert, or of a compiler."""
    assert redacted_text(text) == text


def test_what_the_environment_holds_under_them_is_known(monkeypatch):
    """It is found in every text; a method, a number and a short one are not looked for."""
    monkeypatch.setattr(sys, "argv", ["train.py"])
    for name, value in {
        "MY_PASS": "hunter-2-hunter",
        "AUTH": "kerberos",
        "N_PASS": "12345678x",
        "DSN": "12345678",
    }.items():
        monkeypatch.setenv(name, value)
    text = "hunter-2-hunter kerberos 12345678x 12345678"
    assert redacted_text(text) == "<redacted> kerberos 12345678x 12345678"
