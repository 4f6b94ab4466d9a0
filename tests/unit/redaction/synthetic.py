"""Secrets that were never anybody's, drawn from a seed, in the places where secrets turn up."""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from openclaw_rl.redaction.numbers import CHINESE_ID_WEIGHTS, IBAN_LENGTHS, passes_luhn

LETTERS_DIGITS = string.ascii_letters + string.digits
URL_SAFE = LETTERS_DIGITS + "_-"
HEX = "0123456789abcdef"


@dataclass(frozen=True, slots=True)
class Case:
    """`secret` must be gone from `text` once it is redacted."""

    kind: str
    secret: str
    text: str


def draw(rng: random.Random, alphabet: str, length: int) -> str:
    """Random characters that a service could have drawn: at least two digits among them."""
    while True:
        made = "".join(rng.choices(alphabet, k=length))
        if sum(c.isdigit() for c in made) >= 2 and made[0] not in "-_" and made[-1] not in "-_":
            return made


def jwt(rng: random.Random) -> str:
    def part(raw: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(raw).encode()).decode().rstrip("=")

    claims = {"sub": str(rng.randrange(10**9)), "name": "Ann", "iat": rng.randrange(10**9, 2 * 10**9)}
    return f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(claims)}.{draw(rng, URL_SAFE, 43)}"


def private_key(rng: random.Random) -> str:
    name = rng.choice(("RSA ", "EC ", "OPENSSH ", "", "ENCRYPTED "))
    body = "\n".join(draw(rng, LETTERS_DIGITS + "+/", 64) for _ in range(rng.randrange(3, 12)))
    return (
        f"-----BEGIN {name}PRIVATE KEY-----\n{body}\n{draw(rng, LETTERS_DIGITS, 10)}==\n-----END {name}PRIVATE KEY-----"
    )


def card(rng: random.Random) -> str:
    prefix, groups = rng.choice(
        (
            *(("4", (4, 4, 4, 4)), ("51", (4, 4, 4, 4)), ("2221", (4, 4, 4, 4)), ("6011", (4, 4, 4, 4))),
            *(("37", (4, 6, 5)), ("36", (4, 6, 4)), ("62", (6, 13)), ("4", (4, 3, 3, 3))),
        )
    )
    length = sum(groups)
    body = prefix + "".join(rng.choices(string.digits, k=length - len(prefix) - 1))
    digits = next(body + last for last in string.digits if passes_luhn(body + last))
    separator = rng.choice(("", " ", "-"))
    parts, start = [], 0
    for size in groups:
        parts.append(digits[start : start + size])
        start += size
    return separator.join(parts)


def iban(rng: random.Random) -> str:
    country = rng.choice(("DE", "FR", "GB", "NL", "CH", "ES", "IT", "PL"))
    letters = "".join(rng.choices(string.ascii_uppercase, k=4)) if country in ("GB", "NL") else ""
    account = letters + "".join(rng.choices(string.digits, k=IBAN_LENGTHS[country] - 4 - len(letters)))
    number = int("".join(str(int(c, 36)) for c in account + country + "00"))
    whole = f"{country}{98 - number % 97:02}{account}"
    return whole if rng.random() < 0.5 else " ".join(whole[i : i + 4] for i in range(0, len(whole), 4))


def chinese_id(rng: random.Random) -> str:
    born = f"{rng.randrange(1950, 2015)}{rng.randrange(1, 13):02}{rng.randrange(1, 29):02}"
    body = f"{rng.choice(('110105', '310101', '440305'))}{born}{rng.randrange(1000):03}"
    return body + "10X98765432"[sum(int(d) * w for d, w in zip(body, CHINESE_ID_WEIGHTS, strict=True)) % 11]


def phone(rng: random.Random) -> str:
    def digits(count: int) -> str:
        return "".join(rng.choices(string.digits, k=count))

    area, exchange = f"{rng.randrange(201, 990)}", f"{rng.randrange(200, 1000)}"
    return rng.choice(
        (
            f"+1 {area} {exchange} {digits(4)}",
            f"+1-{area}-{exchange}-{digits(4)}",
            f"+49 {rng.randrange(150, 180)} {digits(8)}",
            f"+44 20 {digits(4)} {digits(4)}",
            f"+33 6 {digits(2)} {digits(2)} {digits(2)} {digits(2)}",
            f"+8613{digits(9)}",
            f"({area}) {exchange}-{digits(4)}",
            f"{area}-{exchange}-{digits(4)}",
            f"{area}.{exchange}.{digits(4)}",
            f"030 {digits(8)}",
            f"0{rng.randrange(150, 180)}/{digits(7)}",
            f"020 {digits(4)} {digits(4)}",
            f"06 {digits(2)} {digits(2)} {digits(2)} {digits(2)}",
            f"0049 {rng.randrange(150, 180)} {digits(8)}",
        )
    )


def password(rng: random.Random) -> str:
    word = rng.choice(("hunter", "Sunflower", "correcthorse", "Tr0ub4dor", "qwerty", "letmein", "Winter"))
    return f"{word}{rng.randrange(10, 9999)}{rng.choice(('', '!', '#', '_x', '$Z'))}"


TOKENS: dict[str, Callable[[random.Random], str]] = {
    "openai-key": lambda r: r.choice(
        (f"sk-{draw(r, LETTERS_DIGITS, 48)}", f"sk-proj-{draw(r, URL_SAFE, 64)}", f"sk-{draw(r, HEX, 32)}")
    ),
    "anthropic-key": lambda r: f"sk-ant-api03-{draw(r, URL_SAFE, 93)}AA",
    "aws-key": lambda r: r.choice(("AKIA", "ASIA")) + draw(r, string.ascii_uppercase + "234567", 16),
    "github-token": lambda r: r.choice(
        (
            f"{r.choice(('ghp', 'gho', 'ghs', 'ghu', 'ghr'))}_{draw(r, LETTERS_DIGITS, 36)}",
            f"github_pat_{draw(r, LETTERS_DIGITS, 22)}_{draw(r, LETTERS_DIGITS, 59)}",
        )
    ),
    "gitlab-token": lambda r: f"glpat-{draw(r, URL_SAFE, 20)}",
    "slack-token": lambda r: r.choice(
        (
            f"xoxb-{r.randrange(10**11, 10**12)}-{r.randrange(10**11, 10**12)}-{draw(r, LETTERS_DIGITS, 24)}",
            f"https://hooks.slack.com/services/T{draw(r, LETTERS_DIGITS, 8)}/B{draw(r, LETTERS_DIGITS, 8)}/"
            f"{draw(r, LETTERS_DIGITS, 24)}",
        )
    ),
    "google-key": lambda r: r.choice((f"AIza{draw(r, URL_SAFE, 35)}", f"GOCSPX-{draw(r, URL_SAFE, 28)}")),
    "stripe-key": lambda r: f"{r.choice(('sk', 'rk'))}_{r.choice(('live', 'test'))}_{draw(r, LETTERS_DIGITS, 24)}",
    "huggingface-token": lambda r: f"hf_{draw(r, LETTERS_DIGITS, 34)}",
    "npm-token": lambda r: f"npm_{draw(r, LETTERS_DIGITS, 36)}",
    "pypi-token": lambda r: f"pypi-AgEIcHlwaS5vcmc{draw(r, URL_SAFE, 120)}",
    "api-key": lambda r: r.choice(
        (
            f"SG.{draw(r, URL_SAFE, 22)}.{draw(r, URL_SAFE, 43)}",
            f"dop_v1_{draw(r, HEX, 64)}",
            f"gsk_{draw(r, LETTERS_DIGITS, 52)}",
            f"{r.randrange(10**9, 10**10)}:AA{draw(r, LETTERS_DIGITS, 33)}",
            f"ocrl-{draw(r, URL_SAFE, 43)}",
        )
    ),
    "jwt": jwt,
    "private-key": private_key,
    "card": card,
    "iban": iban,
    "ssn": lambda r: f"{r.randrange(100, 665)}-{r.randrange(10, 100)}-{r.randrange(1000, 10000)}",
    "email": lambda r: (
        f"{r.choice(('ann', 'bob.lee', 'c_d+news', 'x1'))}{r.randrange(100)}@"
        f"{r.choice(('example.com', 'mail.corp.co.uk', 'uni-berlin.de', 'qq.com'))}"
    ),
    "phone": phone,
    "chinese-mobile": lambda r: r.choice(("13", "15", "18", "19")) + "".join(r.choices(string.digits, k=9)),
    "id-number": chinese_id,
}
"""Kinds that are found wherever they stand."""

PLACES: tuple[str, ...] = (
    "{}",
    "Here it is: {} - keep it safe.",
    "I used {}, and it failed with a 401.",
    "(see {})",
    'const x = "{}";',
    "x = '{}'  # rotate me",
    '{{"value": "{}", "n": 1}}',
    "value: {}\nother: 1",
    "export X={}",
    "curl -H 'X-Thing: {}' https://api.example.org/v1",
    "| name | {} |",
    "帮我看看这个：{}，谢谢",
    "- {}\n- next",
)

NAMED: dict[str, tuple[Callable[[random.Random], str], tuple[str, ...]]] = {
    "password": (
        password,
        (
            "password = {}",
            'password = "{}"',
            "'password': '{}',",
            '{{"user": "ann", "password": "{}"}}',
            '{{"arguments": "{{\\"password\\": \\"{}\\"}}"}}',
            "db:\n  password: {}\n  host: db",
            "DB_PASSWORD={}\nDB_HOST=db",
            "export PGPASSWORD='{}'",
            "mysql --user root --password {} shop",
            "my password is {}, what now?",
            "The password for the staging box is {}.",
            "Server=db;User Id=sa;Password={};Encrypt=True",
            "密码是{}，别告诉别人",
            "<password>{}</password>",
            "passwd: {}",
            "login with pwd={} please",
        ),
    ),
    "aws-secret": (
        lambda r: draw(r, LETTERS_DIGITS + "/+", 40),
        (
            "aws_secret_access_key = {}",
            "AWS_SECRET_ACCESS_KEY={}",
            '"SecretAccessKey": "{}",',
            "secretAccessKey: '{}'",
            "the AWS secret is {}",
        ),
    ),
    "named-secret": (
        lambda r: draw(r, r.choice((LETTERS_DIGITS, HEX, URL_SAFE)), r.choice((20, 32, 40))),
        (
            "api_key: {}",
            'apiKey: "{}"',
            "API_KEY={}",
            "X-API-Key: {}",
            "client_secret={}&grant_type=client_credentials",
            "token = '{}'",
            'os.environ["SECRET_KEY"] = "{}"',
            "my api key is {}",
            "use the token {} for now",
            "GET /v1/things?access_token={}&page=2",
            "--api-key {}",
            "AccountName=shop;AccountKey={};EndpointSuffix=core.windows.net",
            '{{"refresh_token": "{}"}}',
            "encryption key: {}",
            "credentials: {}",
        ),
    ),
    "auth-header": (
        lambda r: draw(r, LETTERS_DIGITS, r.choice((24, 40))),
        (
            "Authorization: Bearer {}",
            "curl -H 'Authorization: Bearer {}' https://x.example.org",
            '"Authorization": "Bearer {}"',
            "headers = {{'authorization': 'Basic {}'}}",
            "Bearer {}",
            "Cookie: session={}",
        ),
    ),
    "url-password": (
        lambda r: draw(r, LETTERS_DIGITS, r.choice((8, 16))),
        (
            "postgres://shop:{}@db.example.org:5432/shop",
            "DATABASE_URL=mysql://root:{}@127.0.0.1/x",
            "redis://:{}@cache:6379/0",
            "mongodb+srv://ann:{}@cluster0.example.net/?w=majority",
            "git clone https://ann:{}@git.example.org/x.git",
            "amqp://guest:{}@mq/vhost",
            "curl -u ann:{} https://api.example.org",
        ),
    ),
}
"""Kinds that the words beside them give away, and those words."""


def cases(seed: int, *, per_kind: int) -> Iterator[Case]:
    """As many secrets of every kind, each in another of its places."""
    rng = random.Random(seed)
    for kind, make in TOKENS.items():
        for number in range(per_kind):
            secret = make(rng)
            yield Case(kind, secret, PLACES[number % len(PLACES)].format(secret))
    for kind, (make, places) in NAMED.items():
        for number in range(per_kind):
            secret = make(rng)
            yield Case(kind, secret, places[number % len(places)].format(secret))
