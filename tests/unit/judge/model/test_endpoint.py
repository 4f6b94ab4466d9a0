"""The endpoint judge against a real server on loopback that is slow, dies, talks nonsense, refuses, and lies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from openclaw_rl.backoff import Backoff
from openclaw_rl.config import load_config
from openclaw_rl.errors import JudgeError
from openclaw_rl.judge.compose import Composed
from openclaw_rl.judge.model.endpoint import EndpointAsker
from openclaw_rl.judge.model.panel import AskFailed, PanelJudge
from openclaw_rl.judge.registry import make_judges
from openclaw_rl.types import Message, VoteQuestion
from tests.unit.judge.talk import hinting, said, talk

KEY = "sk-very-secret-key"
GOOD = "The user thanks.\n\\boxed{1}"
ASKED = (said("system", "judge"), said("user", "the evidence"))

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def completion(content: object, **choice: object) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": "stop", **choice}]}


class Server:
    """Answers the requests that come by the script, one entry each; the last entry for all that follow.

    An entry is the content of a good answer, a response, or a coroutine function of the request.
    """

    def __init__(self) -> None:
        self.script: list[str | Callable[[], web.Response] | Answer] = [GOOD]
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.num_running = self.max_running = 0
        self.asked = asyncio.Event()
        self.url = ""

    async def respond(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        self.headers.append(dict(request.headers))
        self.asked.set()
        entry = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        self.num_running += 1
        self.max_running = max(self.max_running, self.num_running)
        try:
            if isinstance(entry, str):
                return web.json_response(completion(entry))
            if asyncio.iscoroutinefunction(entry):
                return await entry(request)  # type: ignore[no-any-return]
            return entry()  # type: ignore[call-arg, return-value]
        finally:
            self.num_running -= 1


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    scripted = Server()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", scripted.respond)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    scripted.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield scripted
    await runner.cleanup()


@asynccontextmanager
async def asking(server: Server, **options: Any) -> AsyncIterator[EndpointAsker]:
    settings = {"model": "judge-1", "timeout_s": 5.0, "backoff": Backoff(first_s=0.001), **options}
    asker = EndpointAsker(server.url, **settings)
    try:
        yield asker
    finally:
        await asker.close()


async def ask(asker: EndpointAsker, *, seed: int = 0, question: VoteQuestion = "score", text: str = "") -> str:
    messages: tuple[Message, ...] = (*ASKED, said("user", text)) if text else ASKED
    return await asker.ask(messages, question=question, seed=seed)


async def failure(server: Server, **options: Any) -> str:
    async with asking(server, **options) as asker:
        with pytest.raises(AskFailed) as caught:
            await ask(asker)
    return str(caught.value)


def response(status: int = 200, body: object = None, **options: Any) -> Callable[[], web.Response]:
    return lambda: web.Response(status=status, body=body if isinstance(body, bytes) else json.dumps(body), **options)


async def test_what_is_asked(server: Server) -> None:
    async with asking(server, api_key=KEY, temperature=0.3, max_tokens=77) as asker:
        assert await ask(asker, seed=2) == GOOD
    assert server.bodies == [
        {
            "model": "judge-1",
            "messages": [{"role": "system", "content": "judge"}, {"role": "user", "content": "the evidence"}],
            "temperature": 0.3,
            "max_tokens": 77,
            "seed": 2,
        }
    ]
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


async def test_without_a_key_no_header_is_sent(server: Server) -> None:
    async with asking(server) as asker:
        await ask(asker)
    assert "Authorization" not in server.headers[0]


@pytest.mark.parametrize("tail", ["", "/", "/chat/completions", "/chat/completions/"])
async def test_every_way_to_write_the_url(server: Server, tail: str) -> None:
    server.url += tail
    async with asking(server) as asker:
        assert await ask(asker) == GOOD


async def test_hints_may_have_a_model_of_their_own(server: Server) -> None:
    async with asking(server, hint_model="hinter") as asker:
        await ask(asker)
        await ask(asker, question="hint")
    assert [body["model"] for body in server.bodies] == ["judge-1", "hinter"]


async def test_what_several_votes_send_is_redacted_once(server: Server) -> None:
    redacted: list[str] = []

    def note(text: str) -> str:
        redacted.append(text)
        return text

    async with asking(server, redact=note) as asker:
        await asyncio.gather(*(ask(asker, seed=seed) for seed in range(3)))
    assert len(server.bodies) == 3
    assert redacted == ["judge", "the evidence"]


async def test_everything_that_is_sent_is_redacted(server: Server) -> None:
    async with asking(server, redact=lambda text: text.replace("evidence", "[gone]")) as asker:
        await ask(asker)
    assert "evidence" not in json.dumps(server.bodies)
    assert server.bodies[0]["messages"][1]["content"] == "the [gone]"


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (response(500), "127.0.0.1 answered 500 (3 attempts)"),
        (response(503), "127.0.0.1 answered 503 (3 attempts)"),
        (response(429, headers={"Retry-After": "0"}), "127.0.0.1 answered 429 (3 attempts)"),
    ],
)
async def test_trouble_is_tried_again_a_bounded_number_of_times(
    server: Server, trouble: Callable[[], web.Response], reason: str
) -> None:
    server.script = [trouble, trouble, GOOD]
    async with asking(server) as asker:
        assert await ask(asker) == GOOD
    assert len(server.bodies) == 3
    server.script = [trouble]
    assert await failure(server) == reason
    assert len(server.bodies) == 6


async def hang_up(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


async def die_in_the_middle(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Length": "1000", "Content-Type": "application/json"})
    await answer.prepare(request)
    await answer.write(b'{"choices": [{"message": {"content": "\\\\boxed{1}')
    assert request.transport is not None
    request.transport.close()
    return answer


@pytest.mark.parametrize("death", [hang_up, die_in_the_middle])
async def test_a_server_that_dies_is_asked_again(server: Server, death: Answer) -> None:
    server.script = [death, GOOD]
    async with asking(server) as asker:
        assert await ask(asker) == GOOD
    server.script = [death]
    reason = await failure(server, retries=1)
    assert reason.startswith("127.0.0.1: ")
    assert reason.endswith("(2 attempts)")


async def test_nobody_listens(server: Server, unused_tcp_port: int) -> None:
    server.url = f"http://127.0.0.1:{unused_tcp_port}/v1"
    assert await failure(server, retries=1) == "127.0.0.1: ClientConnectorError (2 attempts)"


async def test_retry_after_is_honoured(server: Server) -> None:
    wait = response(429, headers={"Retry-After": "0.3"})
    server.script = [wait, GOOD]
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    async with asking(server) as asker:
        assert await ask(asker) == GOOD
    assert loop.time() - began_at >= 0.3


@pytest.mark.parametrize("value", ["3600", "date"])
async def test_a_wait_that_does_not_fit_is_not_waited_for(server: Server, value: str) -> None:
    value = formatdate(1000 + 3600, usegmt=True) if value == "date" else value
    server.script = [response(429, headers={"Retry-After": value})]
    reason = await failure(server, clock=lambda: 1000.0)
    assert reason == "127.0.0.1 answered 429; another attempt in 3600 s would exceed evaluation.judge_timeout_s"
    assert len(server.bodies) == 1


async def test_an_unreadable_wait_is_none(server: Server) -> None:
    server.script = [response(429, headers={"Retry-After": "soon"}), GOOD]
    async with asking(server) as asker:
        assert await ask(asker) == GOOD


async def sleep_long(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(30)
    return web.Response()


async def drip(request: web.Request) -> web.StreamResponse:
    """Always a little more, never all of it: a limit between two bytes would never strike."""
    answer = web.StreamResponse()
    await answer.prepare(request)
    while True:
        await answer.write(b" ")
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("slow", [sleep_long, drip])
async def test_a_slow_server_is_given_up(server: Server, slow: Answer) -> None:
    server.script = [slow]
    assert await failure(server, timeout_s=0.1) == "127.0.0.1 gave no answer within 0.1 s"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (
            response(200, b"<html>sign in</html>", content_type="text/html"),
            "no JSON object; is judge_url its /v1 base?",
        ),
        (response(200, b"\xff\xfe\x00garbage"), "no JSON object"),
        (response(200, b""), "no JSON object"),
        (response(200, [1]), "no JSON object"),
        (response(200, {}), "holds no choice with a text"),
        (response(200, {"choices": []}), "holds no choice with a text"),
        (response(200, {"choices": "none"}), "holds no choice with a text"),
        (response(200, {"choices": [None]}), "holds no choice with a text"),
        (response(200, completion(None)), "holds no choice with a text"),
        (response(200, completion({"text": "x"})), "holds no choice with a text"),
        (response(200, {"error": {"code": "overloaded"}}), "holds no choice with a text (overloaded)"),
        (response(200, completion("  \n")), "the answer is empty"),
        (response(200, completion(GOOD, finish_reason="length")), "cut at its length limit; raise"),
        (response(401, {"error": {"code": "invalid_api_key", "message": KEY}}), "answered 401 (invalid_api_key)"),
        (response(404, b"no"), "answered 404"),
        (response(400, {"error": {"code": KEY, "type": "sk"}}), "answered 400"),
        (response(302, b"", headers={"Location": "http://127.0.0.1:9/elsewhere"}), "answered 302"),
    ],
)
async def test_a_wrong_answer_fails_at_once_and_tells_no_secret(
    server: Server, answer: Callable[[], web.Response], reason: str
) -> None:
    server.script = [answer]
    said_why = await failure(server, api_key=KEY)
    assert reason in said_why
    assert KEY not in said_why
    assert "evidence" not in said_why
    assert "(sk" not in said_why
    assert len(server.bodies) == 1


async def flood(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    while True:
        await answer.write(b"x" * 65536)


async def test_a_flood_is_not_read_to_its_end(server: Server) -> None:
    server.script = [flood]
    assert await failure(server) == "127.0.0.1 answered with more than 1048576 bytes"


@pytest.mark.parametrize("url", ["", "ftp://host/v1", "localhost:8000", "http://"])
def test_a_wrong_url_says_so(url: str) -> None:
    with pytest.raises(JudgeError, match="judge_url is not an http"):
        EndpointAsker(url, model="m")


@pytest.mark.parametrize("key", ["sk-\nx", "", "schlüssel"])
def test_a_key_that_no_header_carries_says_so(key: str) -> None:
    with pytest.raises(JudgeError, match="judge_api_key") as caught:
        EndpointAsker("http://host/v1", model="m", api_key=key)
    assert not key or key not in str(caught.value)


async def test_the_same_is_asked_once(server: Server) -> None:
    async with asking(server) as asker:
        for _ in range(3):
            assert await ask(asker) == GOOD
        assert len(server.bodies) == 1
        await ask(asker, seed=1)
        await ask(asker, text="more")
        assert len(server.bodies) == 3


async def test_another_model_is_another_question(server: Server) -> None:
    server.script = ["nothing\n\\boxed{-1}"]
    async with asking(server, hint_model="hinter") as asker:
        await ask(asker)
        await ask(asker, question="hint")
        await ask(asker, question="hint")
    assert len(server.bodies) == 2


async def test_an_answer_that_decides_nothing_is_not_remembered(server: Server) -> None:
    server.script = ["hm", GOOD]
    async with asking(server) as asker:
        assert await ask(asker) == "hm"
        assert await ask(asker) == GOOD
        assert await ask(asker) == GOOD
    assert len(server.bodies) == 2


async def test_memory_is_bounded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openclaw_rl.judge.model.endpoint._MAX_CACHED", 2)
    async with asking(server) as asker:
        for seed in (0, 1, 0, 2):  # 2 pushes out 1, which was used longest ago
            await ask(asker, seed=seed)
        assert len(server.bodies) == 3
        await ask(asker, seed=0)
        assert len(server.bodies) == 3
        await ask(asker, seed=1)
        assert len(server.bodies) == 4


async def test_the_budget_of_a_day(server: Server) -> None:
    now = 1000.0
    async with asking(server, daily_budget=2, clock=lambda: now) as asker:
        await ask(asker, seed=0)
        now += 3600
        await ask(asker, seed=1)
        with pytest.raises(AskFailed, match=r"the daily budget of 2 votes is spent; the next is due in 23.0 h"):
            await ask(asker, seed=2)
        assert await ask(asker, seed=0) == GOOD, "what is remembered costs nothing"
        assert PanelJudge(asker).num_spent == 2
        now += 23 * 3600
        assert PanelJudge(asker).num_spent == 1
        await ask(asker, seed=2)
        with pytest.raises(AskFailed, match="budget"):
            await ask(asker, seed=3)
    assert len(server.bodies) == 3


async def test_retries_belong_to_their_vote(server: Server) -> None:
    server.script = [response(500), GOOD]
    async with asking(server, daily_budget=1) as asker:
        assert await ask(asker) == GOOD


async def test_no_more_than_so_many_at_once(server: Server) -> None:
    async def slowly(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.02)
        return web.json_response(completion(GOOD))

    server.script = [slowly]
    async with asking(server, concurrency=3) as asker:
        await asyncio.gather(*(ask(asker, seed=seed) for seed in range(12)))
    assert server.max_running == 3
    assert len(server.bodies) == 12


async def test_waiting_in_line_is_not_the_servers_time(server: Server) -> None:
    async def slowly(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.2)
        return web.json_response(completion(GOOD))

    server.script = [slowly]
    async with asking(server, concurrency=1, timeout_s=1.0) as asker:
        answers = await asyncio.gather(*(ask(asker, seed=seed) for seed in range(6)))
    assert answers == [GOOD] * 6


async def test_a_cancelled_vote_frees_its_place(server: Server) -> None:
    server.script = [sleep_long, GOOD]
    async with asking(server, concurrency=1) as asker:
        vote = asyncio.create_task(ask(asker))
        await server.asked.wait()
        vote.cancel()
        with pytest.raises(asyncio.CancelledError):
            await vote
        assert await ask(asker) == GOOD


async def test_a_lying_judge_does_not_get_through(server: Server) -> None:
    """Scores that are none, two at once, hints without a decision: failed, not zero."""
    server.script = ["\\boxed{10}", "\\boxed{1}\n\\boxed{-1}", "Score: 1", "[HINT_START]x[HINT_END]", "\\boxed{2}", "1"]
    async with asking(server) as asker:
        verdict = await PanelJudge(asker).judge(talk("thanks"))
    assert (verdict.outcome, verdict.score, verdict.hints) == ("failed", None, ())
    assert all(vote.failure and vote.raw for vote in verdict.votes)


async def test_a_panel_over_an_endpoint(server: Server) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        asks_for_hint = "[HINT_START]" in body["messages"][0]["content"]
        return web.json_response(completion(hinting("Answer in one sentence.") if asks_for_hint else "\\boxed{-1}"))

    server.script = [answer]
    async with asking(server) as asker:
        judge = PanelJudge(asker)
        verdict = await judge.judge(talk("shorter please"))
        num_asked = len(server.bodies)
        assert await judge.judge(talk("shorter please")) == verdict
    assert (verdict.score, verdict.hints) == (-1, ("Answer in one sentence.",))
    assert 4 <= num_asked <= 6
    assert len(server.bodies) <= 6, "judging the same again asks for nothing that is known"


async def test_a_panel_that_is_not_believed_asks_anew(server: Server) -> None:
    """What a judge said while it lied must not come back out of the cache once it is honest."""
    async with asking(server) as asker:
        judge = PanelJudge(asker, num_judges=1)
        assert (await judge.judge(talk("shorter please"))).score == 1
        server.script = ["\\boxed{-1}"]
        assert (await judge.judge(talk("shorter please"))).score == 1, "kept"
        judge.forget()
        assert (await judge.judge(talk("shorter please"))).score == -1


@pytest.mark.parametrize(
    ("request_", "wish", "hint"),
    [
        ("Wie viele Beine hat eine Spinne?", "Nein, das ist viel zu lang. Bitte nur ein Satz.", "Ein Satz genügt."),
        ("Parle-moi des araignées.", "Trop long, et sans listes la prochaine fois.", "Réponds sans listes."),
        ("Háblame de las arañas.", "Demasiado formal. Tutéame, por favor.", "Trata al usuario de tú."),
        ("How many legs does a spider have?", "Zu lang, bitte kürzer.", "Antworte kürzer."),
    ],
)
async def test_what_an_endpoint_judge_read_in_another_language_is_learned(
    server: Server, request_: str, wish: str, hint: str
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        asks_score = "Score the reply" in (await request.json())["messages"][-1]["content"]
        return web.json_response(completion("A complaint.\n\\boxed{-1}" if asks_score else hinting(hint)))

    server.script = [answer]
    overrides = ("evaluation.judge=endpoint", f"evaluation.judge_url={server.url}", "evaluation.judge_model=m")
    judge = Composed(make_judges(load_config(env={}, overrides=overrides).config))
    verdict = await judge.judge(talk(wish, request=request_, reply="Acht. / Huit. / Ocho."))
    await judge.close()
    assert (verdict.score, verdict.hints, verdict.claims) == (-1, (hint,), False)


async def test_the_seeds_settings_file_asks_its_models_with_three_votes(server: Server) -> None:
    file = Path(__file__).parents[3] / "data" / "seed_training_config.yaml"
    given = [
        "evaluation.judge=endpoint",
        f"evaluation.judge_url={server.url}",
        "training.hint_extraction_model=gpt-4-hints",
    ]
    config = load_config([file], {}, given).config
    scores = iter(["\\boxed{1}", "\\boxed{-1}", "\\boxed{0}"])

    async def respond(request: web.Request) -> web.StreamResponse:
        is_score = (await request.json())["model"] == "gpt-4"
        return web.json_response(completion(next(scores) if is_score else "\\boxed{-1}"))

    server.script = [respond]
    (judge,) = make_judges(config)
    verdict = await judge.judge(talk("no, shorter"))
    await judge.close()
    models = [body["model"] for body in server.bodies]
    assert (models.count("gpt-4"), set(models)) == (3, {"gpt-4", "gpt-4-hints"})
    assert (verdict.outcome, verdict.reason) == ("abstained", "the votes tie: 1 each for -1 and 0 and +1")
