"""How tokens of common services begin, and programs that take a password as the word after a short option.

The beginnings are those of the rules of gitleaks (https://github.com/gitleaks/gitleaks, MIT, config/gitleaks.toml of
July 2026) that need no word beside the token. Its lengths are not taken over: a line of a log may be cut. What its
rules do not have stands apart.
"""

from __future__ import annotations

from hangdoc.model.secret_names import word_set

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
