"""Keys and tokens of well-known services, key files, headers, addresses: what is known by its shape alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from openclaw_rl.redaction.randomness import is_placeholder, is_random
from openclaw_rl.redaction.rule import Rule, Seen, Span, rule

_KEY_BLOCK = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,16} ){0,3}PRIVATE KEY(?: BLOCK)?-----", re.ASCII)
_KEY_LINES = re.compile(r"(?:(?:[\s\"',]|\\[nr])*+[A-Za-z0-9+/=]{20,}+)*+", re.ASCII)
_KEY_END = "-----END"
_MAX_KEY_BLOCK = 65_536

_JWT = re.compile(
    r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))(eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{6,}+)", re.ASCII
)
_SCHEMES = ("bearer", "basic", "token")
_SCHEME_VALUE = re.compile(r"[ \t]{1,4}[\"']?([A-Za-z0-9+/_.~-]{8,}+={0,2})", re.ASCII)
_COOKIE = re.compile(
    r"(?<![A-Za-z-])(?:set-)?cookie\\?[\"']?\s{0,3}:\s{0,3}\\?[\"']?([\w.-]{1,64}=[^\n\"'\\\0]{6,}+)",
    re.ASCII | re.IGNORECASE,
)
_LOGIN_IN_URL = re.compile(r"://[^\s/:@\"'<>\\\0]{0,128}:([^\s/@\"'<>\\\0]{1,256})@(?=[\w\[.-])", re.ASCII)
_LOGIN_OPTION = re.compile(r"(?<=\s)(?:-u|--user)[= ]{1,4}[\"']?[\w.@-]{1,64}:([^\s\"'\0]{3,128})", re.ASCII)

_LOCAL_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+%-]{0,63}\Z", re.ASCII)
_DOMAIN = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,62})\.){1,8}([A-Za-z]{2,24})(?![A-Za-z0-9_-]|\.[A-Za-z0-9])", re.ASCII
)
_ESCAPED_START = re.compile(r"\\[nrt]", re.ASCII)
_FILE_ENDINGS = frozenset(
    (
        *("png", "jpg", "jpeg", "gif", "svg", "webp", "ico", "pdf", "mp3", "mp4", "woff", "ttf", "zip", "gz", "tgz"),
        *("js", "mjs", "ts", "tsx", "jsx", "css", "scss", "html", "json", "yaml", "yml", "toml", "lock", "map"),
        *("txt", "md"),
        *("py", "rs", "go", "java", "kt", "rb", "php", "c", "h", "cc", "cpp", "hpp", "so", "dll", "exe", "whl"),
    )
)


def _shape(pattern: str, check: Callable[[str], bool] = lambda _: True) -> Callable[[Seen], Iterator[Span]]:
    """Finds `pattern`, which begins with plain letters, where it stands alone."""
    compiled = re.compile(pattern + r"(?![A-Za-z0-9_])", re.ASCII)  # letters first: then the search is a fast one

    def search(seen: Seen) -> Iterator[Span]:
        text = seen.text
        for match in compiled.finditer(text):
            start = match.start()
            before = text[start - 1 : start]
            alone = not (before.isascii() and (before.isalnum() or before == "_"))
            if (alone or _ESCAPED_START.match(text, start - 2)) and check(match[0]):
                yield match.span()

    return search


def _has_digits(token: str) -> bool:
    """Names of things that only begin like a key ("sk-fading-circle-…") have hardly any."""
    return sum(character.isdigit() for character in token) >= 2


def _key_blocks(seen: Seen) -> Iterator[Span]:
    """From BEGIN to END; where END is missing, the lines that can only be the key."""
    text, start, next_end = seen.text, 0, 0
    while match := _KEY_BLOCK.search(text, start):
        if next_end != -1 and next_end < match.end():
            # Once per END: looking again from each BEGIN would be quadratic.
            next_end = text.find(_KEY_END, match.end())
        if 0 <= next_end <= match.end() + _MAX_KEY_BLOCK:
            dashes = text.find("-----", next_end + len(_KEY_END), next_end + 80)
            start = dashes + 5 if dashes >= 0 else next_end + len(_KEY_END)
        else:
            lines = _KEY_LINES.match(text, match.end())
            start = lines.end() if lines else match.end()
        yield match.start(), start


def _headers(seen: Seen) -> Iterator[Span]:
    end = 0
    for at, scheme in seen.places(_SCHEMES):
        match = _SCHEME_VALUE.match(seen.text, at + len(scheme)) if at >= end else None
        if match is None:
            continue
        told = "authorization" in seen.lowered[max(0, at - 32) : at]
        sure = told or (scheme == "bearer" and len(match[1]) >= 16 and is_random(match[1]))
        if sure and not is_placeholder(match[1]):
            yield match.span(1)
            end = match.end()


def _group(pattern: re.Pattern[str]) -> Callable[[Seen], Iterator[Span]]:
    """Finds what the first group of `pattern` holds, unless it only says what should stand there."""

    def search(seen: Seen) -> Iterator[Span]:
        return (match.span(1) for match in pattern.finditer(seen.text) if not is_placeholder(match[1]))

    return search


def _emails(seen: Seen) -> Iterator[Span]:
    text, end = seen.text, 0
    at = text.find("@")
    while at >= 0:
        domain = _DOMAIN.match(text, at + 1)
        local = _LOCAL_PART.search(text, max(end, at - 64), at) if domain is not None else None
        if domain is not None and local is not None:
            # `git@host:path` is where a repository lies; `icon@2x.png` a file.
            is_remote = local[0] == "git" and text[domain.end() : domain.end() + 1] in (":", "/")
            if domain[1].lower() not in _FILE_ENDINGS and not is_remote:
                yield local.start(), domain.end()
                end = domain.end()
        at = text.find("@", at + 1)


_WORD = r"[A-Za-z0-9]"
_TEXT = r"[A-Za-z0-9_-]"

_OTHER_SERVICES = (
    (("sg.",), rf"SG\.{_TEXT}{{16,32}}\.{_TEXT}{{32,}}+"),  # SendGrid
    (("dop_v1_", "doo_v1_", "dor_v1_"), r"do[opr]_v1_[0-9a-f]{64}"),  # DigitalOcean
    (("shpat_", "shpca_", "shppa_", "shpss_"), r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),  # Shopify
    (("gsk_",), rf"gsk_{_WORD}{{32,}}+"),  # Groq
    (("xai-",), rf"xai-{_WORD}{{32,}}+"),  # xAI
    (("r8_",), rf"r8_{_WORD}{{32,}}+"),  # Replicate
    (("dapi",), r"dapi[0-9a-f]{32}"),  # Databricks
    (("lin_api_",), rf"lin_api_{_WORD}{{32,}}+"),  # Linear
    (("ntn_",), rf"ntn_{_WORD}{{40,}}+"),  # Notion
    (("hvs.",), rf"hvs\.{_TEXT}{{24,}}+"),  # Vault
    (("dckr_pat_",), rf"dckr_pat_{_TEXT}{{24,}}+"),  # Docker
    (("key-",), r"key-[0-9a-f]{32}"),  # Mailgun
    (("age-secret-key-",), r"AGE-SECRET-KEY-1[A-Z0-9]{58}"),
    (("ocrl-",), rf"ocrl-{_TEXT}{{40,}}+"),  # ours
)

RULES: tuple[Rule, ...] = (
    rule("private-key", ("private key",), _key_blocks),
    rule("jwt", ("eyj",), _group(_JWT)),
    rule("anthropic-key", ("sk-ant-",), _shape(rf"sk-ant-{_TEXT}{{20,}}+", _has_digits)),
    rule("openai-key", ("sk-",), _shape(rf"sk-{_TEXT}{{20,}}+", _has_digits)),
    rule("aws-key", ("akia", "asia", "abia", "acca"), _shape(r"A(?:KI|SI|BI|CC)A[A-Z0-9]{16}")),
    rule(
        "github-token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        _shape(rf"g(?:h[pousr]_{_WORD}{{36,}}+|ithub_pat_[A-Za-z0-9_]{{22,}}+)"),
    ),
    rule(
        "gitlab-token",
        ("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glimt-", "glsoat-", "glagent-"),
        _shape(rf"gl(?:pat|dt|rt|cbt|ptt|ft|imt|soat|agent)-{_TEXT}{{20,}}+", _has_digits),
    ),
    rule("slack-token", ("xox", "xapp-"), _shape(r"x(?:ox[abeoprs]|app)-[A-Za-z0-9-]{10,}+", _has_digits)),
    rule("slack-token", ("hooks.slack.com",), _shape(r"hooks\.slack\.com/services/[A-Za-z0-9/]{20,}+")),
    rule("google-key", ("aiza",), _shape(rf"AIza{_TEXT}{{35}}")),
    rule("google-key", ("gocspx-",), _shape(rf"GOCSPX-{_TEXT}{{20,}}+")),
    rule("google-key", ("ya29.",), _shape(rf"ya29\.{_TEXT}{{20,}}+")),
    rule("stripe-key", ("sk_", "rk_", "pk_"), _shape(rf"[srp]k_(?:live|test)_{_WORD}{{16,}}+")),
    rule("stripe-key", ("whsec_",), _shape(rf"whsec_{_WORD}{{24,}}+")),
    rule("huggingface-token", ("hf_",), _shape(rf"hf_{_WORD}{{30,}}+")),
    rule("npm-token", ("npm_",), _shape(rf"npm_{_WORD}{{36,}}+")),
    rule("pypi-token", ("pypi-",), _shape(rf"pypi-{_TEXT}{{50,}}+")),
    *(rule("api-key", signs, _shape(pattern)) for signs, pattern in _OTHER_SERVICES),
    rule("api-key", (":aa",), _shape(r"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}")),  # Telegram
    rule("auth-header", ("bearer", "authorization"), _headers),
    rule("cookie", ("cookie",), _group(_COOKIE)),
    rule("url-password", ("://",), _group(_LOGIN_IN_URL)),
    rule("url-password", ("-u", "--user"), _group(_LOGIN_OPTION)),
    rule("email", ("@",), _emails),
)
