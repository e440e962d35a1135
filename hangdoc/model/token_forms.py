"""Secrets that are known by their form, and programs that take a password as the word after a short option.

The beginnings are those of the rules of gitleaks (https://github.com/gitleaks/gitleaks, MIT, config/gitleaks.toml of
July 2026) that need no word beside the token. Its lengths are not taken over: a line of a log may be cut. What its
rules do not have stands apart.
"""

from __future__ import annotations

import re

from hangdoc.model.secret_names import word_set

HIDDEN = "…"

BEGINNINGS = word_set(
    r"""
    ops_eyJ p8e- LTAI AKCp cmVmd ABSK CLOJARS_ doo_v1_ dop_v1_ dor_v1_ dp.pt. duffel_test_ duffel_live_ dt0c01.
    EZAK EZTK EAAC EAAM FLWSECK_TEST- FLWPUBK_TEST- fo1_ fm1a_ fm1r_ fm2_ fio-u- glcbt- gldt- glffct- glft- glimt-
    glagent- gloas- glpat- glptt- GR1348941 glrt- glsoat- glc_ glsa_ HRKU-AA api_org_ ico- lin_api_ ntn_ npm_ sha256~
    pplx- pscale_tkn_ pscale_oauth_ pscale_pw_ PMAK- pnu_ pul- pypi- rdme_ rubygems_ tk-us- xkeysib- sntrys_ sntryu_
    sm_aat_ sm_pat_ sm_sat_ shippo_live_ shippo_test_ shpat_ shpca_ shppa_ shpss_ xapp- sgp_ sq0atp- EAAA sk_test_
    sk_live_ sk_prod_ rk_test_ rk_live_ rk_prod_ hvb. hvs. dapi
    sk- gsk_ r8_ dckr_pat_ lsv2_pt_ nvapi- tskey- ATATT sq0csp- sbp_ whsec_ EAAB 1//0
    """
)
"""The last line: of OpenAI and Anthropic, Groq, Replicate, Docker, LangSmith, NVIDIA, Tailscale, Atlassian, Square's
secrets, Supabase, the webhooks of Stripe and Svix, Facebook's users, and Google's refresh tokens (each its own
documentation)."""

PASSWORD_FLAGS = {
    **dict.fromkeys(("sshpass", "login", "mongo", "mongosh", "mongodump", "cqlsh", "ncftp", "ncftpput"), ("-p",)),
    **dict.fromkeys(("redis-cli", "valkey-cli"), ("-a",)),
    **dict.fromkeys(("ldapsearch", "ldapadd", "ldapmodify", "ldapdelete", "ldapwhoami", "ldappasswd"), ("-w",)),
    **dict.fromkeys(("unzip", "zip", "sqlcmd", "bcp", "ipmitool"), ("-P",)),
    "mysql": ("-p",),
    "openssl": ("-k", "-passin", "-passout"),
}
"""Program → its options before a password, as their manuals say ('login': of docker, podman, helm, oc, az)."""

_MIXED_RUN = re.compile(r"(?=\d{0,7}[A-Za-z])(?=[A-Za-z]{0,7}\d)[A-Za-z0-9]{8}")
_FORMS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"hf_[A-Za-z0-9]{20,}"
    rf"|(?P<mixed>(?:{'|'.join(map(re.escape, sorted(BEGINNINGS)))})[\w\-]{{16,}})"
    r"|gh[opsur]_[\w]{12,}|github_pat_\w{12,}|xox[abeoprs]-[\w\-]{8,}|(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{12,}"
    r"|eyJ[\w\-]{8,}\.[\w\-]{4,}(?:\.[\w\-]*)?|AIza[\w\-]{30,}|ya29\.[\w\-]{20,}|SG\.[\w\-]{16,}\.[\w\-]{16,}"
    r"|AGE-SECRET-KEY-1[A-Z0-9]{20,}|bot\d{6,12}:[\w\-]{20,}|\d{6,12}:AA[\w\-]{28,})"
)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{1,40}-----"
    r"(?:[A-Za-z0-9+/=]|\\[nr]|\s|(?:Proc-Type|DEK-Info|Version|Comment): [^\n]{0,100})*"
    r"(?:-----END [A-Z0-9 ]{1,40}-----)?"
)
_LONG = re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{60,}={0,2}")
# A password may hold a slash, and what follows a colon may be a port.
_USER_IN_URL = re.compile(
    r"(?P<scheme>(?<![\w+.\-])[A-Za-z][\w+.\-]{0,30}://)"
    r"(?:[^/\s\"'<>]+|[^/\s\"'<>:@]{0,100}:(?!\d{1,5}(?:/|$))[^\s\"'<>]{1,200})@"
)
_WEBHOOK = re.compile(
    r"(?P<host>\b(?:hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks"
    r"|webhook\.office\.com/webhookb2)/)[\w/\-@]+"
)
_USER_OPTION = re.compile(
    r"(?P<before>(?<![\w\-])(?:(?P<short>-u)|--user|--proxy-user|--userpass)(?:=|[\"']?,?[ \t]{1,4}|(?=\w))"
    r"[\"']?[^\s:\"'/=]{1,100}:)"
    r"(?!\d+(?![\w\-]))(?:[^\s\"']+(?: [^\n\"']{1,200}(?=[\"']))?)"
)
_FTP = re.compile(r"(?P<before>\bUSER\s{1,4}\S{1,100}\s{1,4}PASS\s{1,4}|[\"'>]\s{0,2}PASS )(?P<value>[^\s\"']+)")
_LOGIN = re.compile(r"(?P<before>\blogin(?: --?[\w\-]{1,30})?[ \t]{1,4})[0-9a-f]{40}\b")
_BEARER = re.compile(r"(?P<scheme>\b(?:[Bb]earer|BEARER|Basic)\s{1,4})(?P<value>[A-Za-z0-9+/=._~\-]{6,})")


def without_forms(text: str) -> str:
    """``text`` without what has the form of a secret; its lines stay as many."""
    if "-----BEGIN " in text:
        text = _PRIVATE_KEY.sub(lambda match: HIDDEN + "\n" * match[0].count("\n"), text)
    text = _FORMS.sub(lambda match: match[0] if match["mixed"] and not _is_random(match["mixed"]) else HIDDEN, text)
    if "://" in text:
        text = _USER_IN_URL.sub(rf"\g<scheme>{HIDDEN}@", text)
    if "hook" in text:
        text = _WEBHOOK.sub(rf"\g<host>{HIDDEN}", text)
    if "--" in text or "curl" in text:
        text = _USER_OPTION.sub(
            lambda match: match[0] if match["short"] and "curl" not in text else match["before"] + HIDDEN, text
        )
    if "PASS " in text:
        text = _FTP.sub(rf"\g<before>{HIDDEN}", text)
    if "login" in text:
        text = _LOGIN.sub(rf"\g<before>{HIDDEN}", text)
    text = _BEARER.sub(
        lambda match: match["scheme"] + (HIDDEN if _is_mixed(match["value"]) else match["value"]),
        text,
    )
    return _LONG.sub(lambda match: HIDDEN if _is_dense(match[0]) else match[0], text)


def _is_random(text: str) -> bool:
    """No words with bars between them: letters of both cases and digits, or eight in a row that mix letters and digits.
    Examples: 'sk-Ab12Cd34' is; 'sgp_rank_0_layer_12' is not."""
    kinds = (str.isdigit, str.isupper, str.islower)
    return _MIXED_RUN.search(text) is not None or all(any(map(kind, text)) for kind in kinds)


def _is_mixed(text: str) -> bool:
    return any(character.isdigit() for character in text) or not text[1:].islower()


def _is_dense(text: str) -> bool:
    """Random letters, and no path: more than a third are capitals and digits, and some are small letters."""
    loud = sum(character.isupper() or character.isdigit() for character in text)
    return len(text) > loud and any(c.isupper() for c in text) and 3 * loud > len(text)
