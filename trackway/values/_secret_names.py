"""Which names look as if a secret stood under them."""

from __future__ import annotations

import functools
import re
from enum import IntEnum

__all__ = ["CHOICES", "Suspicion", "segments", "suspicion", "words"]


class Suspicion(IntEnum):
    """How sure it is that what stands under a name is a secret."""

    NONE = 0
    WEAK = 1
    """Names that stand for other things as well: a `token` may be one of a vocabulary, a `pass` one over the data."""
    STRONG = 2


_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SEPARATORS = re.compile(r"[^A-Za-z0-9]+")
_LEVELS = re.compile(r"[/.]")


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


_ALONE = _set(
    "password passwords passwd passphrase passphrases passcode secret secrets credential credentials creds apikey "
    "apikeys accesskey secretkey privatekey authkey signingkey authorization authtoken accesstoken apitoken "
    "refreshtoken sessiontoken bearertoken hftoken ghtoken githubtoken gitlabtoken wandbtoken bottoken "
    "connectionstring webhook"
)
_ENDS = ("password", "passwd", "passphrase", "secret", "apikey", "secretkey", "accesskey", "privatekey", "authtoken")
_VENDORS = _set(
    "anthropic aws azure bedrock cohere comet databricks datadog deepseek gcp gemini ghcr github gitlab google groq "
    "huggingface kaggle langfuse langsmith mailgun mistral neptune openai openrouter perplexity pinecone pypi "
    "sendgrid sentry slack stripe tavily telegram twilio wandb wb"
)
_OF_KEY = _VENDORS | _set(
    "access account api auth decryption encryption hmac license private secret signing ssh subscription symmetric"
)
_OF_PASS = _set(
    "admin auth basic database db email ftp http imap ldap login mail mysql pg postgres proxy redis root smtp ssh "
    "sudo user wifi"
)
_OF_TOKENS = _VENDORS | _set("access api auth bearer hf hub oauth personal refresh secret session")
_PAIRS = frozenset({("connection", "string"), ("conn", "string"), ("conn", "str")})
_WEAK = frozenset({"token", "pwd", "pass", "auth", "dsn", "jwt", "cookie", "cookies", "bearer"})
_OF_AUTH = frozenset({"basic", "http", "proxy"})
_OF_DSN = _OF_PASS | _VENDORS

CHOICES = _set(
    "all anonymous auto backward basic bearer both cert certificate digest disabled enabled eval first forward gssapi "
    "iam internal jwt kerberos key last ldap md5 mtls negotiate ntlm oauth oauth1 oauth2 oidc optional pam password "
    "plain public rbac required saml scram scram-sha-1 scram-sha-256 scram-sha-512 second spnego ssh sso ssl standard "
    "test tls token train trust val validation x509"
)
"""What is chosen under names such as `auth` and `pass` where they name no secret: a method, or a stage."""

# a token after one of these is one of a vocabulary, or a vector of a model
_NO_TOKEN = _set(
    "action add added additional adapter answer assistant audio before begin beginning blank block bod boi bos "
    "boundary box byte cache char character class cls code codec context control cost cross current decoder delim "
    "delimiter dist distillation domain dummy each embedding empty encoder end ending eod eoi eol eom eop eos eot "
    "extra fake fill fim final first forced frame func function global go ignore im image img infix init inner "
    "instruct instruction label lang language last latent learnable learned long loss mask masked max memory meta "
    "middle min missing n new newline next no noise null num number object observation of oov out outer output pad "
    "padding patch per point pooling pos position prefix prev previous price prompt query question readout reg "
    "register repeat response reward role segment sel self semantic sentinel sep separator short silence single soft "
    "sos sot source space special speech src start starting state stop sub subword suffix summary sys system tag "
    "target task text tgt think thinking time timestamp tool total track trainable truncation turn unk unknown "
    "utterance video virtual vision visual vocab with word"
)
# a pass after one of these goes through data or a program, or is a filter or a result
_NO_PASS = _set(
    "accumulation all back backward band batch bi bwd by check checks codegen color compile compiler cur current data "
    "debug decode decoder depth did each encode encoder epoch eval evaluation fast final first forward fourth fusion "
    "fwd generation global graph gradient high hlo id inference inverse jit last late llvm local loop low lowering "
    "main max min mlir model multi must n name next no num number of one opt optimisation optimization optimizer "
    "param per post pre prev previous pruning quantization reduce refine refinement render rewrite second shader "
    "shadow should single slow step sweep test tests third total train training transform two unit val valid "
    "validation verify warmup will xla"
)
# after a name of a secret: it is not the secret, but something about it
_ABOUT = _set(
    "age algorithm arn backend callback class column count counts dim dims dir dirs disabled duration embedding "
    "embeddings enabled encoder env expiration expired expires expiry field file filename files folder format frac "
    "header hint index kind label len length level lifetime limit loss manager mask max mean method metric min mode "
    "mount name names namespace optional path paths pattern policy prob probability prompt provider ratio rate ref "
    "reference regex required rotation schema scheme scope scopes score sharing size source std store strategy "
    "timeout ttl type types uri url usage validator var variable variables version weight"
)
_MANNER = _set("b backup base dev encoded hex new old plain prod production raw staging str test value")


def words(name: str) -> list[str]:
    """Return the words of *name*, small: `apiKey`, `API_KEY` and `api-key` are two, "api" and "key"."""
    split = _SEPARATORS.split(_CAMEL.sub("_", name))
    return [word.lower().rstrip("0123456789") or word for word in split if word]


def segments(path: str) -> list[str]:
    """Return the names that lead to a value: *path* split at `/` and `.`."""
    return [part for part in _LEVELS.split(path) if part]


@functools.lru_cache(maxsize=4096)
def suspicion(path: str) -> Suspicion:
    """Return what the name at the end of *path*, or one that a secret may stand below, says of its value."""
    names = segments(path[-2000:])  # more would only fill the cache
    if not names:
        return Suspicion.NONE
    *above, last = map(words, names)
    own = _own(last)
    if own is Suspicion.STRONG or not above:
        return own
    if any(_own(level) is Suspicion.STRONG for level in above) and not (last and last[-1] in _ABOUT):
        return Suspicion.STRONG
    return own


def _own(parts: list[str]) -> Suspicion:
    for end in range(len(parts), 0, -1):
        noun = _noun(parts[:end])
        if noun is Suspicion.NONE:
            continue
        rest = parts[end:]
        if not rest or (noun is Suspicion.STRONG and not _ABOUT.intersection(rest)) or parts[end - 1 :] == _WEBHOOK:
            return noun
        if noun is Suspicion.WEAK and all(word in _MANNER or word.isdecimal() for word in rest):
            return noun
    return Suspicion.NONE


_WEBHOOK = ["webhook", "url"]


def _noun(parts: list[str]) -> Suspicion:
    """What the last words of *parts* say, leaving aside what may follow."""
    last, before = parts[-1], parts[-2] if len(parts) > 1 else ""
    if last in _ALONE or last.endswith(_ENDS) or (before, last) in _PAIRS:
        return Suspicion.STRONG
    if last in {"key", "keys"} and before in _OF_KEY:
        return Suspicion.STRONG
    if last in {"pass", "pw", "pwd"} and before in _OF_PASS:
        return Suspicion.STRONG
    if (last == "tokens" and before in _OF_TOKENS) or (last == "auth" and before in _OF_AUTH):
        return Suspicion.STRONG
    if last == "token" and before in _OF_TOKENS:
        return Suspicion.STRONG
    if last == "dsn" and before in _OF_DSN:
        return Suspicion.STRONG
    if (last == "token" and before in _NO_TOKEN) or (last == "pass" and before in _NO_PASS):
        return Suspicion.NONE
    return Suspicion.WEAK if last in _WEAK else Suspicion.NONE
