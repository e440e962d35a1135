"""Names of what may be a secret: ``--wandb-key``, ``DB_PASSWORD``, ``apiToken``; not ``max_tokens``, ``keyframe``."""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache


class Kind(Enum):
    """How sure it is that a name is a secret's."""

    SURE = "sure"
    """A password, a secret."""
    OWNED = "owned"
    """Somebody's token or key: a number of few digits is a count or an id."""
    LONE = "lone"
    """Just a token: in a text may be a part of a text."""
    BARE = "bare"
    """A key of unknown use: in a text a secret only if it looks random."""
    BRIEF = "brief"
    """auth, pass: in a text a secret only after an equals sign."""


def word_set(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


_PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SURE = word_set(
    """
    password passwords passwd passphrase passcode pwd pw secret secrets cred credential credentials creds
    authorization cookie cookies dsn jwt apikey privatekey secretkey accesskey authkey authtoken accesstoken
    refreshtoken apitoken sshpass
    """
)
_SURE_ENDINGS = ("password", "passwd", "passphrase", "secret", "apikey", "secretkey", "accesskey", "privatekey")
_WITHOUT_MEANING = word_set(
    """
    value val str string text plain raw b64 base64 hex bytes new old
    """
)
_ABOUT_IT = word_set(
    """
    file files path paths dir folder name names type types id ids len length size sizes dim dims count counts
    num ttl expiry expires expired env var idx index mask policy field column manager provider error errors
    required enabled attempts embedding embeddings embed emb weight weights bias shape dropout mixer loss prob
    logits padding proj norm cache class method mode format url uri endpoint frame frames version scope
    """
)
_FLAGS = word_set(
    """
    no use with without skip has have require requires allow enable disable ask prompt save show print is need
    """
)
# Whose tokens and keys are parts of a text or of a table.
_TEXT_TOKENS = word_set(
    """
    pad eos bos mask sep cls unk per next last num n max min special start end image first prev by each stop
    begin class pos register dist visual audio query latent memory global local prompt input output draft
    current cur new generated sampled padding vision video speech language target source
    """
)
_KEY_OWNERS = word_set(
    """
    api access secret private account encryption wandb auth ssh license licence master service storage aws
    azure gcp openai anthropic hf huggingface ngc nvidia neptune comet mlflow app application client deploy
    webhook admin root signing shared cohere replicate rsa gpg pgp pem decryption subscription
    """
)
_PLAIN_KEYS = word_set(
    """
    sort primary foreign group dict cache partition query value attention input output label image text data
    target feature store state metric column batch order hot monitor prefix map rank grad param tensor config
    row index join state_dict lookup sample audio video caption loss step time hash
    """
)
_PASSES = word_set(
    """
    forward backward first second single multi by num low high band one two by all
    """
)


def words_of(name: str) -> list[str]:
    """``--wandbApi-key2`` → wandb, api, key, 2."""
    return [piece.lower() for piece in _PIECE.findall(name)]


def kind_of_name(name: str) -> Kind | None:
    """What kind of secret the name announces; None: none."""
    return _kind(name[-200:])


@lru_cache(4096)
def _kind(name: str) -> Kind | None:
    # Many branches, because it is one ordered list of rules: the first that fits decides.
    words = words_of(name)
    while words and (words[-1] in _WITHOUT_MEANING or words[-1].isdigit()):
        words.pop()
    if not words or words[-1] in _ABOUT_IT:
        return None
    last, owner = words[-1], words[-2] if len(words) > 1 else ""
    if words == ["pwd"] or last.endswith(("sessid", "sessionid")) or words[-2:] == ["gitlab", "session"]:
        return Kind.BRIEF  # pwd: a password, or the working directory
    if any(word in _SURE for word in words) or last.endswith(_SURE_ENDINGS):
        return Kind.SURE
    if (last == "signature" and owner == "amz") or (last, owner) == ("sig", ""):
        return Kind.BRIEF
    if last in ("token", "bearer"):
        return None if owner in _TEXT_TOKENS else Kind.OWNED if owner else Kind.LONE
    if last.endswith("token"):
        return Kind.OWNED
    if last.endswith("key"):
        owner = last[:-3] or owner
        if owner in _KEY_OWNERS:
            return Kind.OWNED
        return Kind.BARE if last == "key" and owner not in _PLAIN_KEYS else None
    if last == "auth" or (last in ("pass", "passw") and owner not in _PASSES):
        return Kind.BRIEF
    return None


def is_flag(name: str) -> bool:
    """``--use-auth-token``: an option that takes no value."""
    return not _FLAGS.isdisjoint(words_of(name)[:1])
