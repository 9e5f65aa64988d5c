"""Secrets are replaced by marks in whatever is normalised, by name and by form."""

import string
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trackway.errors import ConfigError
from trackway.testing import RecordingTracker
from trackway.tracker import CompositeTracker
from trackway.tracker._dispatch import Call
from trackway.values import (
    Html,
    Image,
    RedactionPolicy,
    Row,
    Table,
    Text,
    normalise,
    redacted_text,
    redaction_policy,
    set_redaction,
)
from trackway.values._redact import holds_secret, redacted_command, redacted_name
from trackway.values._secret_names import Suspicion, suspicion
from trackway.values._secret_texts import is_mark, mark

POLICY = RedactionPolicy()
pytestmark = pytest.mark.usefixtures("default_policy")
LONG = "q7Rz2mK9xW4vB8nT1pLd"
FORMS = (
    "sk-" + "Ab3dEf6hIj9kLm2nOp5q",
    "sk-ant-api03-" + "Ab3dEf6hIj9kLm2nOp5q-rS",
    "hf_" + "AbCdEfGhIjKlMnOpQr3tUvWxYz",
    "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hI6",
    "github_pat_" + "11ABCDEFG0abcdefghij_KLMNOP",
    "AKIA" + "IOSFODNN7EXAMPLE",
    "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q",
    "xoxb-" + "123456789012-abcdefGHIJKL",
    "glpat-" + "aB3dE6gH9jK2mN5pQ8sT",
    "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0." + "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA0Z3VS5JJcds3xfn\nx4B7\n-----END RSA PRIVATE KEY-----",
)
SECRET = (
    "password", "db_password", "dbPassword", "DB-PASSWORD", "passwd", "passphrase", "secret", "client_secret",
    "apiKey", "apikey", "api-key", "OPENAI_API_KEY", "openai_key", "access_key", "access_key_id", "secrets",
    "aws_secret_access_key",
    "privateKey", "credentials", "credentials/user", "Authorization", "token", "hf_token", "auth_token", "accessToken",
    "api_tokens", "token_2", "password_prod", "smtp_pass", "http_proxy_auth", "connection_string", "webhook_url",
    "model.token", "a/b/c/secret", "servers.0.password", "jwt", "cookie", "SSH_KEY", "signing_key",
)  # fmt: skip
HARMLESS = (
    "key", "keys", "keys_per_query", "num_keys", "rng_key", "prng_key", "sort_key", "public_key", "keyword", "key_dim",
    "token_count", "max_tokens", "num_tokens", "tokens", "tokens_per_second", "tokenizer", "tokenizer_name", "tokenize",
    "eos_token", "bos_token", "pad_token", "pad_token_id", "mask_token", "special_tokens", "image_token", "cls_token",
    "token_embedding", "token_dropout", "num_new_tokens", "cost_per_token", "secretary", "password_file", "secret_name",
    "api_key_env", "credentials_path", "token_url", "passes", "num_passes", "forward_pass", "author",
    "authority",
    "compass", "lr", "model/name", "optimizer.betas", "attention/key/kernel", "query_key_norm", "encoder_token_type",
)  # fmt: skip


@pytest.mark.parametrize("name", SECRET)
def test_names_of_secrets(name):
    """A text under a name that looks secret is replaced whole, in whatever case and at any depth."""
    row = normalise({name: LONG, "nested": {"deep": [{name: LONG}]}}, reserved=False)
    assert LONG not in str(row)
    assert row[name] == mark(LONG)


@pytest.mark.parametrize("name", HARMLESS)
def test_names_that_are_harmless(name):
    """Names that models and tokenizers have are no secrets."""
    assert suspicion(name) is Suspicion.NONE
    assert normalise({name: "gpt2"}, reserved=False) == {name: "gpt2"}


@pytest.mark.parametrize("secret", FORMS)
@pytest.mark.parametrize("around", ["{}", "see {} here", '{{"a": "{}"}}', "run --x={}&y"])
def test_secrets_known_by_their_form(secret, around):
    """What looks like a key of a service is replaced wherever it stands, and the rest of the text stays."""
    told = normalise({"note": around.format(secret)})["note"]
    assert secret not in told
    assert told == around.format(mark(secret))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("https://bob:hunter2@git.io/x", "https://bob:<redacted>@git.io/x"),
        ("postgres://u:a@b@db:5432/x", "postgres://u:<redacted>@db:5432/x"),
        ("redis://:pass123@h", "redis://:<redacted>@h"),
        (f"https://{LONG}@host/x", f"https://{mark(LONG)}@host/x"),
        (f"Authorization: Bearer {LONG}", f"Authorization: Bearer {mark(LONG)}"),
        (f"curl -H 'authorization: Basic {LONG}=='", f"curl -H 'authorization: Basic {mark(LONG + '==')}'"),
        (f"https://h/p?token={LONG}&page=2", f"https://h/p?token={mark(LONG)}&page=2"),
        ("WANDB_API_KEY=0123abc python x.py", "WANDB_API_KEY=<redacted> python x.py"),
        ("{'api_key': 'a b c', 'lr': 1}", "{'api_key': '<redacted>', 'lr': 1}"),
        (r"{\"password\": \"pw pw\"}", r"{\"password\": \"<redacted>\"}"),
        ("Config(password=SecretStr('abc'), n=3)", "Config(password=SecretStr('<redacted>'), n=3)"),
        ("login failed: password: hunter2", "login failed: password: <redacted>"),
        ("https://hooks.slack.com/services/T00/B00/XXXXXXXX", "https://hooks.slack.com/services/<redacted>"),
    ],
)
def test_secrets_within_texts(text, told):
    """Credentials of URLs, headers, queries, assignments and reprs are replaced within a text."""
    assert redacted_text(text) == told


@pytest.mark.parametrize(
    "text",
    [
        "unexpected token: expected a name",
        "tokenizer=gpt2 eos_token=<eos> max_tokens=512",
        "the secret: patience",
        "risk-averse-task-scheduling-2024-run",
        "git@github.com:org/repo.git and ssh://git@host/x",
        "s3://bucket/key=1/part-0",
        "mean loss 0.123456789012345678901234",
        "da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "${oc.env:HF_TOKEN}",
        "password=<redacted> token=<redacted sha256:0123abcd>",
    ],
)
def test_texts_that_are_harmless(text):
    """Prose, names, hashes, references and marks stay as they are."""
    assert redacted_text(text) == text


def test_empty_and_referring_values_stay():
    """Under a name that looks secret, what holds none is kept: nothing, None, a flag, a reference."""
    payload = {"password": "", "token": None, "secret": True, "api_key": "${WANDB_API_KEY}", "hf_token": "$HF_TOKEN"}
    assert normalise(payload, reserved=False) == payload


def test_vocabulary_under_the_bare_name_stays():
    """A `token` may be one of a vocabulary, which is written in brackets."""
    assert normalise({"token": "<|user|>"}) == {"token": "<|user|>"}


def test_numbers_of_hyperparameters_and_of_metrics():
    """A number under a surely secret name is replaced among hyper-parameters, and kept as a metric."""
    payload = {"password": 123456, "pins": {"secret": [1, 2]}, "secret": 0.5}
    told = normalise(payload, reserved=False)
    assert told == {"password": "<redacted>", "pins": {"secret": ["<redacted>", "<redacted>"]}, "secret": "<redacted>"}
    assert normalise(payload) == payload


def test_fingerprints_compare_and_do_not_tell():
    """Equal secrets have equal fingerprints; one that could be guessed has none, or a guess could be checked."""
    assert mark(LONG) == mark(LONG) != mark(LONG + "1")
    assert len(mark(LONG).removeprefix("<redacted sha256:")) == len("12345678>")
    assert mark("hunter2") == mark("correct horse battery staple 1") == "<redacted>"


def test_texts_of_every_kind_of_value():
    """Bytes, paths, arrays of text, sets, reprs and fields are looked at like plain texts."""

    class Client:
        def __repr__(self):
            return "x" * 360 + f"Client(api_key='{LONG}')" + "y" * 400

    @dataclass
    class Login:
        user: str = "bob"
        password: str = field(default=LONG)

    url = f"https://bob:{LONG}@h/x"
    payload = {
        "bytes": url.encode(), "path": Path(url) / f"api_key={LONG}", "array": np.array([url, "b"]),
        "set": {url}, "login": Login(), "tuple": (url, 1), "api_key": np.array(LONG), "client": Client(),
    }  # fmt: skip
    told = normalise(payload, warn=False)
    assert LONG not in str(told)
    assert told["login"] == {"user": "bob", "password": mark(LONG)}
    assert LONG[:8] not in str(told["client"])


def test_media_hold_no_secrets():
    """The texts of tables, pages and captions are replaced; the objects of the caller stay as they are."""
    url, told_url = f"https://bob:{LONG}@h", f"https://bob:{mark(LONG)}@h"
    text, image = Text(url), Image(np.zeros((2, 2)), caption=url)
    row = normalise({"text": text, "html": Html(url), "image": image, "table": Table(["a"], [[url]])})
    assert (row["text"].text, row["html"].html, row["image"].caption) == (told_url, told_url, told_url)
    assert row["table"].data == ((told_url,),)
    assert text.text == image.caption == url
    plain = Text("plain")
    assert normalise({"text": plain})["text"] is plain


def test_names_that_hold_a_secret():
    """Among hyper-parameters a name may be a URL with a password, which is replaced too."""
    assert list(normalise({"servers": {f"https://bob:{LONG}@h": 1}}, reserved=False)["servers"]) == [
        f"https://bob:{mark(LONG)}@h"
    ]


def test_environment(monkeypatch):
    """The value of a secret variable is replaced wherever it stands, while it is set; a word where it stands alone."""
    assert redacted_text("x zQ81kd-9f2p x") == "x zQ81kd-9f2p x"
    monkeypatch.setenv("MY_SERVICE_TOKEN", "zQ81kd-9f2p")
    monkeypatch.setenv("PGPASSWORD", "postgres")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "parallelism")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(Path(__file__)))
    assert redacted_text("x zQ81kd-9f2p x") == "x <redacted> x"
    assert redacted_text("postgres postgresql") == "<redacted> postgresql"
    assert redacted_text(f"parallelism {__file__}") == f"parallelism {__file__}"
    monkeypatch.delenv("MY_SERVICE_TOKEN")
    assert redacted_text("x zQ81kd-9f2p x") == "x zQ81kd-9f2p x"


def test_learnt_from_names():
    """A secret met under a name is replaced in the texts that follow: an error message, for one."""
    secret = "Zx9" + LONG[::-1]
    assert redacted_text(f"no access with {secret}") == f"no access with {secret}"
    normalise({"wandb": {"api_key": secret}})
    assert redacted_text(f"no access with {secret}") == f"no access with {mark(secret)}"


def test_command_lines(monkeypatch):
    """Values of flags and assignments with secret names are replaced, in all the ways to write them."""
    given = ["x.py", "--api-key", LONG, f"--api_key={LONG}", f"+trainer.token={LONG}", f"WANDB_API_KEY={LONG}"]
    given += ["--lr", "1", "--tracker", f"{{type: wandb, api_key: {LONG}}}", "--token-file", "/x", "--password", "-v"]
    told = redacted_command(given)
    assert told == [one.replace(LONG, mark(LONG)) for one in given]
    assert redacted_command(told) == told
    monkeypatch.setattr("sys.argv", given)
    assert redacted_text(f"no {LONG}!") == f"no {mark(LONG)}!"


def test_names_of_artifacts_and_alerts():
    """Names of artifacts are told without secrets, by characters that names may have, and so are alerts."""
    tracker = RecordingTracker()
    composite = CompositeTracker([tracker])
    call = Call("log_artifact", (Path("/tmp") / f"api_key={LONG}.pt",), {"name": None, "type": None})
    assert call.kwargs["name"].startswith("api_key=redacted-")
    assert redacted_name("model.pt") == "model.pt"
    alert = Call("alert", (f"https://a:{LONG}@h",), {"text": f"api_key={LONG}"})
    assert LONG not in str((alert.args, alert.kwargs))
    composite.log_event("login", {"password": LONG})
    assert LONG not in str(vars(tracker))


def test_keep_and_also():
    """Names in `keep` show their values, those in `also` hide them, for what lies below too."""
    set_redaction({"keep": ["model.token", "PUBLIC-*"], "also": ["badge"]})
    payload = {"model": {"token": LONG}, "token": LONG, "public_password": LONG, "Badge": {"of": "bob", "id": 7}}
    assert normalise(payload, reserved=False) == {
        "model": {"token": LONG},
        "token": mark(LONG),
        "public_password": LONG,
        "Badge": {"of": "<redacted>", "id": "<redacted>"},
    }
    assert redacted_text("badge=bob-the-builder") == "badge=<redacted>"


def test_turned_off():
    """`redact: false` replaces nothing."""
    assert set_redaction(False) == RedactionPolicy()
    assert normalise({"password": LONG, "note": FORMS[0]}) == {"password": LONG, "note": FORMS[0]}
    assert redacted_command(["--api-key", LONG]) == ["--api-key", LONG]


def test_policies_from_configurations():
    """None is the policy in force, true the default one, a mapping its fields."""
    assert redaction_policy(None) == redaction_policy(True) == RedactionPolicy()
    assert redaction_policy(False) == RedactionPolicy(enabled=False)
    assert redaction_policy({"keep": ["a"]}) == RedactionPolicy(keep=("a",))
    assert redaction_policy(POLICY) is POLICY


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("yes", "redact must be true, false, or a mapping"),
        ({"kep": ["a"]}, "did you mean keep"),
        ({"keep": "a"}, "redact.keep must be a list of names"),
        ({"also": [1]}, "redact.also: an entry is a name"),
        ({"enabled": 1}, "redact.enabled must be true or false"),
    ],
)
def test_wrong_policies(value, said):
    """A wrong field or type is refused, with what is allowed, and the policy in force stays."""
    with pytest.raises(ConfigError, match=said):
        set_redaction(value)
    assert redaction_policy() == RedactionPolicy()


def test_code_with_secrets():
    """A file of code holds a secret if there is one that nobody could guess, not for the example of a password."""
    assert holds_secret(f'API_KEY = "{LONG}"')
    assert not holds_secret('connect("https://user:pw@host", password="changeme")')
    assert not holds_secret(f"# {mark(LONG)}")


relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # shared machines stall
NAMES = st.sampled_from((*SECRET, *HARMLESS))
PIECES = ("password", "token", "=", ": ", "'", '"', "https://a:b@", "--", "api_key", "<redacted>", " ", ">")
TEXTS = st.one_of(
    st.text(max_size=60),
    st.text(alphabet=string.ascii_letters + string.digits + " =:'\"{}<>-_@/\\,;\n", max_size=80),
    st.lists(
        st.sampled_from([*FORMS, *PIECES]),
        max_size=8,
    ).map("".join),
)  # fmt: skip
SECRETS = st.text(alphabet=string.ascii_letters + string.digits + "!#%+_~", min_size=20, max_size=40)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXTS)
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=12
)


@relaxed
@given(st.dictionaries(NAMES, TREES, max_size=5), st.booleans())
def test_redacting_again_changes_nothing(payload, metrics):
    """What was redacted is not redacted again, whichever way it went: a mark stays the mark that it is."""
    once = normalise(payload, reserved=metrics, warn=False)
    assert normalise(dict(once), reserved=metrics, warn=False) == once


@relaxed
@given(TEXTS)
def test_any_text_can_be_redacted(text):
    """No text raises, and doing it again changes nothing."""
    once = redacted_text(text)
    assert redacted_text(once) == once


@relaxed
@given(st.sampled_from(SECRET), SECRETS, st.integers(0, 3))
def test_nothing_is_left_of_a_secret(name, secret, depth):
    """Under a secret name no secret is left, however deep it lies, and its type stays text."""
    payload = {name: secret}
    for level in range(depth):
        payload = {f"level_{level}": [payload]}
    told = normalise(payload, reserved=False)
    assert secret not in str(told) or is_mark(secret)


@relaxed
@given(st.sampled_from(HARMLESS), st.text(alphabet=string.ascii_lowercase + " ", max_size=30))
def test_harmless_names_keep_words(name, text):
    """Words under a name that is no secret are kept as they are."""
    assert normalise({name: text}, reserved=False) == {name: text}


@relaxed
@given(st.dictionaries(NAMES, st.integers() | st.floats(allow_nan=False) | st.booleans(), max_size=6))
def test_numbers_of_rows_are_kept(row):
    """A row of numbers is kept, whatever their names."""
    assert normalise(row) == row
    assert type(normalise(row)) is Row


@pytest.mark.parametrize(
    "text", ["token=<" * 60_000, "--token " * 20_000, '"token": "' * 40_000, "sk-" * 99_000, "a@b://" * 60_000]
)  # fmt: skip
def test_hostile_texts_take_linear_time(text):
    """A text made to make a pattern try everything is looked at in one go; the test would not end otherwise."""
    assert isinstance(redacted_text(text), str)
