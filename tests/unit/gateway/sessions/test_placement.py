"""Where requests land: one small conversation language, and a table of what real clients do with it."""

from __future__ import annotations

import itertools

import pytest

from openclaw_rl.errors import RequestError
from openclaw_rl.gateway.sessions.history import trace
from openclaw_rl.gateway.sessions.placement import Arrival, Placement, Sessions, owner_of, session_id
from openclaw_rl.types import Episode, Message, SessionOutline, ToolCall, TurnKind, TurnOutline

TELLING = "an answer that is long enough to be told from all the others"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Talk:
    """Drives a `Sessions` index the way the gateway does."""

    def __init__(self, timeout_s: float = 3600.0, max_open: int | None = None) -> None:
        self.clock = Clock()
        numbers = itertools.count(1)
        self.sessions = Sessions(
            timeout_s=timeout_s, new_id=lambda: f"s{next(numbers)}", max_open=max_open, clock=self.clock
        )

    def ask(
        self,
        *messages: Message,
        user: str = "local",
        key: str | None = None,
        kind: TurnKind = "main",
        digest: str | None = None,
        is_retry: bool = False,
        context: bytes = b"",
        may_repeat: bool = True,
        has_tools: bool = False,
        is_doubtful: bool = False,
        opted_out: bool = False,
        client: str = "test",
        episode: Episode | None = None,
    ) -> Placement:
        return self.sessions.place(
            Arrival(
                user=user,
                client=client,
                key=key,
                kind=kind,
                messages=messages,
                history=trace(owner_of(user, episode), messages, is_openclaw=client == "openclaw"),
                digest=digest or repr(messages),
                is_retry=is_retry,
                context=context,
                may_repeat=may_repeat,
                has_tools=has_tools,
                is_doubtful=is_doubtful,
                opted_out=opted_out,
                episode=episode,
            )
        )

    def answer(self, placement: Placement, message: Message, *, delivered: bool = True, aborted: bool = False) -> None:
        self.sessions.finished(placement.turn, placement.trace.then(message), aborted=aborted)
        placement.turn.delivered = delivered

    def exchange(self, *messages: Message, answer: str = "ok", **how: object) -> Placement:
        placement = self.ask(*messages, **how)  # type: ignore[arg-type]
        self.answer(placement, bot(answer))
        return placement


def system(text: str) -> Message:
    return Message(role="system", content=text)


def user(text: str) -> Message:
    return Message(role="user", content=text)


def bot(text: str, *calls: ToolCall, reasoning: str = "") -> Message:
    return Message(role="assistant", content=text, tool_calls=calls, reasoning=reasoning)


def tool(text: str, call_id: str = "c") -> Message:
    return Message(role="tool", content=text, tool_call_id=call_id)


def call(arguments: str, name: str = "run", call_id: str = "call_x_1") -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


CARRIER = user("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nActive exec sessions: none\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>")


def test_no_more_sessions_are_open_than_the_limit_allows() -> None:
    talk = Talk(max_open=2)
    first = talk.exchange(user("one"))
    talk.exchange(user("two"))
    with pytest.raises(
        RequestError, match=r"2 sessions are open, as many as rollout\.max_concurrent_sessions"
    ) as refused:
        talk.ask(user("three"))
    assert (refused.value.status, refused.value.code) == (429, "too_many_sessions")
    assert talk.exchange(user("one"), bot("ok"), user("more")).session.id == first.session.id, "an open one goes on"
    talk.clock.now += 3600
    assert len(list(talk.sessions.expired())) == 2
    assert talk.exchange(user("three")).opened


def test_answers_under_way_are_counted() -> None:
    talk = Talk()
    talk.exchange(user("one"))
    assert talk.sessions.num_running == 0
    talk.ask(user("two"))
    talk.ask(user("three"))
    assert talk.sessions.num_running == 2


def test_a_session_without_a_name_never_gets_one_that_a_client_has_given() -> None:
    talk = Talk()
    named = talk.exchange(user("mine"), key="s1", answer=TELLING)
    unnamed = talk.exchange(user("another"))
    assert (named.session.id, unnamed.session.id, unnamed.opened) == ("s1", "s2", True)
    again = talk.ask(user("mine"), bot(TELLING), user("more"), key="s1")
    assert (again.session.id, again.turn.index) == ("s1", 1)


def test_a_growing_history_is_one_session_and_its_new_messages_are_the_next_state() -> None:
    talk = Talk()
    first = talk.exchange(user("hi"), answer="hello")
    second = talk.ask(user("hi"), bot("hello"), user("shorter"))
    assert (second.session.id, second.turn.index, second.turn.parent) == (first.session.id, 1, 0)
    assert second.extends_parent
    assert second.next_state is not None
    assert (second.next_state.index, second.next_state.messages) == (0, (user("shorter"),))


@pytest.mark.parametrize(
    ("sampled", "replayed"),
    [
        pytest.param(bot("  hello\n"), bot("hello"), id="white space trimmed"),
        pytest.param(bot("<think>hm</think>hello"), bot("hello"), id="thinking stripped from content"),
        pytest.param(bot("hello", reasoning="hm"), bot("hello"), id="reasoning not replayed"),
        pytest.param(
            bot("", call('{"b": 1, "a": [2]}')),
            bot("", call('{"a":[2],"b":1}', call_id="callx1")),
            id="arguments dumped",
        ),
        pytest.param(bot("", call("not json ")), bot("", call("not json")), id="arguments that are not JSON"),
        pytest.param(bot("", call('{"a": x}')), bot("", call("{}")), id="arguments that a client could not parse"),
        pytest.param(bot("<thinking>hm</thinking>\nhello"), bot("hello"), id="thinking by another tag"),
    ],
)
def test_what_clients_do_to_an_answer_does_not_hide_it(sampled: Message, replayed: Message) -> None:
    talk = Talk()
    first = talk.ask(user("hi"))
    talk.answer(first, sampled)
    second = talk.ask(user("hi"), replayed, user("go on"))
    assert (second.session.id, second.turn.parent) == (first.session.id, 0)


STAMP = "[Mon 2030-01-07 09:00 UTC] "
RUNTIME = "\n\nRuntime: agent=main | session=agent:main:main | sessionId=u | host=box"


@pytest.mark.parametrize(
    ("asked", "replayed"),
    [
        pytest.param(STAMP + "hi", "hi", id="a stamp is gone"),
        pytest.param("hi", STAMP + "hi", id="a stamp is new"),
        pytest.param("hi" + RUNTIME, "hi", id="the Runtime line is gone"),
        pytest.param(STAMP + "hi", STAMP + "hi" + RUNTIME, id="the Runtime line moved here"),
        pytest.param("System: [2030-01-07] a node came\nSystem: and left\n\nhi", "hi", id="events are gone"),
        pytest.param("<system-reminder>\nno\n</system-reminder>\nhi", "hi\n", id="a reminder is gone"),
        pytest.param("hi\n\n" + CARRIER.content, "hi", id="the internal context is gone"),
        pytest.param("hi" + "<system-reminder>" * 100_000, "hi" + "<system-reminder>" * 100_000, id="open marks"),
    ],
)
def test_what_clients_attach_to_a_message_does_not_hide_it(asked: str, replayed: str) -> None:
    talk = Talk()
    talk.exchange(user(asked))
    second = talk.ask(user(replayed), bot("ok"), user("go on"))
    assert (second.turn.parent, second.extends_parent) == (0, True)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(bot("goodbye"), id="another text"),
        pytest.param(bot("", call('{"a":3}')), id="other arguments"),
        pytest.param(bot("", call('{"a":2}', name="stop")), id="another tool"),
    ],
)
def test_an_answer_that_was_never_given_continues_nothing(other: Message) -> None:
    talk = Talk()
    first = talk.ask(user("hi"))
    talk.answer(first, bot("", call('{"a":2}')))
    second = talk.ask(user("hi"), other, user("go on"))
    assert second.session.id != first.session.id
    assert second.next_state is None


def test_a_clock_in_the_system_prompt_does_not_break_a_session() -> None:
    talk = Talk()
    first = talk.exchange(system("now 10:00"), user("hi"))
    second = talk.ask(system("now 10:01"), user("hi"), bot("ok"), user("go on"))
    assert (second.session.id, second.turn.parent) == (first.session.id, 0)


@pytest.mark.parametrize(
    "carrier",
    [
        CARRIER,
        user("[[OPENCLAW_INTERNAL_CONTEXT_BEGIN]]\nnone"),
        user("OpenClaw runtime context for the message before this one.\nIt is runtime-generated, not user-authored."),
    ],
)
def test_openclaws_trailing_message_is_neither_history_nor_feedback(carrier: Message) -> None:
    talk = Talk()
    talk.exchange(user("hi"), carrier)
    second = talk.ask(user("hi"), bot("ok"), user("go on"), carrier)
    assert second.turn.parent == 0
    assert second.next_state is not None
    assert second.next_state.messages == (user("go on"),)


def test_all_parallel_tool_results_are_the_next_state() -> None:
    talk = Talk()
    first = talk.ask(user("hi"))
    calls = bot("", call("{}", call_id="c1"), call("{}", call_id="c2"))
    talk.answer(first, calls)
    second = talk.ask(user("hi"), calls, tool("one", "c1"), tool("two", "c2"))
    assert second.next_state is not None
    assert [m.content for m in second.next_state.messages] == ["one", "two"]


def test_words_before_an_answer_of_somebody_unknown_tell_nothing() -> None:
    """A client that answers itself for the first time looks just like this: the words are its own then."""
    talk = Talk()
    talk.exchange(user("a"), answer="A")
    later = talk.ask(user("a"), bot("A"), user("these are the files"), bot("written elsewhere"), user("c"))
    assert (later.turn.parent, later.next_state) == (0, None)


@pytest.mark.parametrize(
    "words", ["The previous reply has no visible text on my phone.", "Check the heartbeat monitor on server 3."]
)
def test_what_only_looks_like_a_program_is_a_reaction_of_people_elsewhere(words: str) -> None:
    for client, is_told in (("test", True), ("openclaw", False)):
        talk = Talk()
        talk.exchange(user("a"), client=client)
        later = talk.ask(user("a"), bot("ok"), user(words), client=client)
        assert (later.next_state is not None) == is_told


def test_a_retry_after_a_failure_is_the_same_turn_sampled_again() -> None:
    talk = Talk()
    first = talk.ask(user("hi"))
    talk.sessions.failed(first.turn)
    again = talk.ask(user("hi"))
    assert (again.turn.id, again.replay) == (first.turn.id, False)


def test_a_retry_of_an_aborted_stream_is_the_same_turn() -> None:
    talk = Talk()
    first = talk.ask(user("hi"))
    talk.answer(first, bot("hel"), delivered=False, aborted=True)
    again = talk.ask(user("hi"))
    assert (again.turn.id, again.replay) == (first.turn.id, False)


def test_a_retry_of_an_answer_that_was_stored_but_not_delivered_gets_it_again() -> None:
    talk = Talk()
    first = talk.ask(user("hi"))
    talk.answer(first, bot("hello"), delivered=False)
    again = talk.ask(user("hi"))
    assert (again.turn.id, again.replay) == (first.turn.id, True)


def test_a_retry_tells_the_next_state_again_when_the_first_try_kept_nothing() -> None:
    talk = Talk()
    talk.exchange(user("hi"))
    lost = talk.ask(user("hi"), bot("ok"), user("no"))
    assert lost.next_state is not None
    talk.sessions.failed(lost.turn)
    talk.sessions.withdraw(lost)
    again = talk.ask(user("hi"), bot("ok"), user("no"))
    assert again.turn.id == lost.turn.id
    assert again.next_state is not None


def test_a_client_that_says_it_retries_gets_the_answer_it_missed() -> None:
    talk = Talk()
    first = talk.exchange(user("hi"))
    again = talk.ask(user("hi"), is_retry=True)
    assert (again.turn.id, again.replay) == (first.turn.id, True)
    assert talk.ask(user("other"), is_retry=True).opened


def test_the_same_request_after_a_delivered_answer_is_a_sibling() -> None:
    talk = Talk()
    talk.exchange(user("hi"))
    first = talk.exchange(user("hi"), bot("ok"), user("go on"), answer="one")
    sibling = talk.ask(user("hi"), bot("ok"), user("go on"))
    assert sibling.session.id == first.session.id
    assert (sibling.turn.index, sibling.turn.parent) == (2, first.turn.parent)
    assert sibling.next_state is None


def test_parallel_requests_of_one_session_are_siblings_and_the_first_tells_the_next_state() -> None:
    talk = Talk()
    talk.exchange(user("hi"))
    left = talk.ask(user("hi"), bot("ok"), user("left"))
    right = talk.ask(user("hi"), bot("ok"), user("right"))
    twin = talk.ask(user("hi"), bot("ok"), user("right"))
    assert [p.turn.index for p in (left, right, twin)] == [1, 2, 3]
    assert [p.turn.parent for p in (left, right, twin)] == [0, 0, 0]
    assert [p.next_state is not None for p in (left, right, twin)] == [True, False, False]


def test_equal_answers_are_told_apart_by_who_still_waits_for_a_reaction() -> None:
    talk = Talk()
    first = talk.exchange(user("hi"))
    second = talk.exchange(user("hi"))
    reaction = talk.ask(user("hi"), bot("ok"), user("thanks"))
    assert reaction.turn.parent == second.turn.index
    other = talk.ask(user("hi"), bot("ok"), user("never mind"))
    assert other.turn.parent == first.turn.index


def test_an_edited_message_branches_from_the_turn_before_it() -> None:
    talk = Talk()
    talk.exchange(user("a"), answer="A")
    talk.exchange(user("a"), bot("A"), user("b"), answer="B")
    edited = talk.ask(user("a"), bot("A"), user("b, but better"))
    assert (edited.turn.parent, edited.extends_parent) == (0, True)
    assert edited.next_state is None


def test_a_compacted_history_goes_on_from_the_turn_it_kept_verbatim() -> None:
    talk = Talk()
    talk.exchange(user("a"), answer="A")
    talk.exchange(user("a"), bot("A"), user("b"), answer=TELLING)
    last = talk.exchange(user("a"), bot("A"), user("b"), bot(TELLING), user("and?"), answer="B")
    recent = (user("b"), bot(TELLING), user("and?"), bot("B"))
    compacted = talk.ask(user("Summary: we spoke of a."), *recent, user("c"))
    assert (compacted.session.id, compacted.turn.parent) == (last.session.id, last.turn.index)
    assert not compacted.extends_parent
    assert compacted.next_state is not None
    assert compacted.answered.keys() == {2, 4}


def test_a_common_last_exchange_of_two_sessions_proves_nothing() -> None:
    talk = Talk()
    talk.exchange(user("a"), user("go on"), answer="Done.")
    talk.exchange(user("b"), user("go on"), answer="Done.")
    other = talk.ask(user("c"), user("go on"), bot("Done."), user("d"))
    assert other.opened


@pytest.mark.parametrize(
    ("key", "asked", "is_known"),
    [(None, "thanks", False), ("k", "thanks", True), (None, "make the second table as wide as the first", True)],
)
def test_a_last_exchange_that_anybody_has_is_known_again_under_its_name_only(
    key: str | None, asked: str, is_known: bool
) -> None:
    talk = Talk()
    talk.exchange(user("cats?"), user(asked), answer="You are welcome.", key=key)
    other = talk.ask(user("dogs?"), user(asked), bot("You are welcome."), user("that was awful"), key=key)
    assert other.opened is not is_known
    assert (other.next_state is not None) is is_known


@pytest.mark.parametrize("number", [0, 99])
def test_equal_conversations_do_not_hide_a_session_from_itself(number: int) -> None:
    talk = Talk()
    for n in range(100):
        talk.exchange(user("solve it"), key=f"run-{n}")
    key = f"run-{number}"
    retried = talk.ask(user("solve it"), key=key, is_retry=True)
    assert (retried.turn.id, retried.replay) == (f"{key}.0", True)
    later = talk.ask(user("solve it"), bot("ok"), user("wrong"), key=key)
    assert (later.turn.id, later.turn.parent) == (f"{key}.1", 0)
    assert later.next_state is not None


def test_a_named_session_keeps_its_name_and_starts_a_new_root_when_the_history_restarts() -> None:
    talk = Talk()
    first = talk.exchange(user("a"), key="work")
    restarted = talk.ask(user("something else"), key="work")
    assert first.session.id == restarted.session.id == "work"
    assert (restarted.turn.index, restarted.turn.parent, restarted.next_state) == (1, None, None)


def test_a_named_session_never_continues_another() -> None:
    talk = Talk()
    talk.exchange(user("a"), key="one")
    other = talk.ask(user("a"), bot("ok"), user("b"), key="two")
    assert (other.session.id, other.turn.parent, other.next_state) == ("two", None, None)


def test_another_users_last_exchange_is_nobodys_business() -> None:
    talk = Talk()
    talk.exchange(user("a"), user("go on"), answer="a long and telling answer, as nobody else would give")
    eve = talk.ask(
        user("z"), user("go on"), bot("a long and telling answer, as nobody else would give"), user("b"), user="eve"
    )
    assert eve.opened
    assert (eve.turn.parent, eve.next_state) == (None, None)


@pytest.mark.parametrize("answer", ["Done.", TELLING])
def test_a_telling_answer_is_known_again_wherever_it_stands(answer: str) -> None:
    talk = Talk()
    first = talk.exchange(user("a"), answer=answer)
    moved = talk.ask(user("something else"), bot(answer), user("b"))
    assert moved.opened is (answer != TELLING)
    assert (moved.turn.parent == first.turn.index) is (answer == TELLING)
    assert not moved.extends_parent


def test_a_telling_answer_that_was_given_twice_proves_nothing() -> None:
    talk = Talk()
    talk.exchange(user("a"), answer=TELLING)
    talk.exchange(user("b"), answer=TELLING)
    assert talk.ask(user("something else"), bot(TELLING), user("c")).opened


@pytest.mark.parametrize(("key", "answer"), [(None, TELLING), ("k", "Done.")])
def test_rules_behind_the_newest_question_do_not_hide_its_answer(key: str | None, answer: str) -> None:
    talk = Talk()
    talk.exchange(user("a"), bot("Ok."), user("do it\n\n# Rules\n\nMany."), answer=answer, key=key)
    later = talk.ask(user("a"), bot("Ok."), user("do it"), bot(answer), user("more\n\n# Rules\n\nMany."), key=key)
    assert (later.turn.parent, later.extends_parent) == (0, False)
    assert later.next_state is not None


def test_what_a_client_answers_itself_is_no_reaction() -> None:
    talk = Talk()
    files = (user("these are the files"), bot("Ok."))
    talk.exchange(*files, user("do it"), answer=TELLING)
    later = talk.ask(user("do it"), bot(TELLING), user("committed"), bot("Ok."), *files, user("now the next"))
    assert later.next_state is not None
    assert later.next_state.messages == (user("now the next"),)


def test_a_reminder_that_is_dropped_later_changes_nothing() -> None:
    talk = Talk()
    reminder = user("<system-reminder>\nThe list is empty.\n</system-reminder>")
    talk.exchange(user("a"), bot("call"), tool("found", "c"), reminder, answer="ok")
    later = talk.ask(user("a"), bot("call"), tool("found", "c"), bot("ok"), user("b"))
    assert (later.turn.parent, later.extends_parent) == (0, True)


def test_two_answers_shown_as_one_go_on_from_the_later() -> None:
    talk = Talk()
    talk.exchange(user("a"), answer="one\nand a half")
    talk.exchange(user("a"), bot("one\nand a half"), CARRIER, kind="side", answer="two")
    later = talk.ask(user("a"), bot("one\nand a half\ntwo"), user("b"))
    assert (later.turn.parent, later.extends_parent, later.next_state) == (1, False, None)
    assert later.answered == {}


def test_two_answers_shown_as_one_go_on_from_the_first_if_the_other_is_unknown() -> None:
    talk = Talk()
    first = talk.exchange(user("a"), answer="one")
    later = talk.ask(user("a"), bot("one\nsaid elsewhere"), user("b"))
    assert (later.session.id, later.turn.parent, later.next_state) == (first.session.id, 0, None)


HEARTBEAT = user("Do your rounds.\nCurrent time: Monday, 9:00 AM (UTC)\nReference UTC: 2030-01-07 09:00 UTC")
NOTE = user("[Mon 2030-01-07 09:00 UTC] [OpenClaw heartbeat poll]")


@pytest.mark.parametrize(
    ("answer", "told"),
    [pytest.param("NO_REPLY", (0, (user("shorter"),)), id="silent"), pytest.param("Rain!", None, id="heard")],
)
def test_a_heartbeat_is_no_feedback_and_what_it_made_heard_comes_between(
    answer: str, told: tuple[int, tuple[Message, ...]] | None
) -> None:
    talk = Talk()
    talk.exchange(user("a"), answer="A")
    beat = talk.exchange(user("a"), bot("A"), HEARTBEAT, kind="side", answer=answer)
    main = talk.ask(user("a"), bot("A"), NOTE, bot(answer), user("shorter"))
    assert main.turn.parent == beat.turn.index
    assert (main.next_state and (main.next_state.index, main.next_state.messages)) == told


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(HEARTBEAT, id="heartbeat"),
        pytest.param(NOTE, id="a note in place of one"),
        pytest.param(user("[cron:7 sweep] sweep"), id="cron"),
        pytest.param(user("[Internal task completion event]\nsource: subagent"), id="announce"),
        pytest.param(tool("[openclaw] missing tool result", "c"), id="a made-up tool result"),
        pytest.param(system("the mode is: plan"), id="a system message"),
    ],
)
def test_what_programs_write_is_no_reaction(written: Message) -> None:
    talk = Talk()
    talk.exchange(user("a"))
    assert talk.ask(user("a"), bot("ok"), written).next_state is None
    state = talk.ask(user("a"), bot("ok"), written, user("no")).next_state
    assert state is not None
    assert state.messages == (user("no"),)


NUDGE = user("The previous attempt gave no user-visible answer. Try again.")


def test_a_second_try_is_a_sibling_that_stands_in_for_the_first() -> None:
    talk = Talk()
    talk.exchange(user("a"))
    talk.exchange(user("a"), bot("ok"), user("b"), answer="")
    again = talk.ask(user("a"), bot("ok"), user("b"), NUDGE)
    assert (again.turn.index, again.turn.parent, again.next_state) == (2, 0, None)
    talk.answer(again, bot("now"))
    later = talk.ask(user("a"), bot("ok"), user("b"), bot("now"), user("c"))
    assert (later.turn.parent, later.extends_parent) == (2, False)
    assert later.next_state is not None
    assert later.next_state.index == 2


def test_a_second_try_tells_nothing_of_an_equal_answer_that_is_still_waiting() -> None:
    talk = Talk()
    talk.exchange(user("a"))
    talk.exchange(user("a"))
    talk.exchange(user("a"), bot("ok"), user("b"), answer="")
    assert talk.ask(user("a"), bot("ok"), user("b"), NUDGE, client="openclaw").next_state is None


def wrapped(text: str) -> Message:
    return user(f"[kept from before]\n{text}\n\nGo on with your work.")


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize(
    "again",
    [
        wrapped("tell me"),
        user("[kept from before]\ntell me"),
        user("tell me\n\nContinue the current task from the existing transcript."),
    ],
)
def test_a_failed_question_that_comes_back_wrapped_is_the_same_turn(again: Message, key: str | None) -> None:
    talk = Talk()
    talk.exchange(user("a"), key=key)
    failed = talk.ask(user("a"), bot("ok"), user("tell me"), CARRIER, key=key)
    talk.sessions.failed(failed.turn)
    retried = talk.ask(user("a"), bot("ok"), again, CARRIER, key=key)
    assert (retried.turn.id, retried.turn.parent, retried.replay) == (failed.turn.id, 0, False)
    talk.answer(retried, bot(TELLING))
    later = talk.ask(user("a"), bot("ok"), user("tell me"), bot(TELLING), user("thanks"), key=key)
    assert (later.turn.index, later.turn.parent, later.extends_parent) == (2, 1, False)
    assert later.next_state is not None
    assert later.next_state.index == 1


def test_a_failed_first_question_comes_back_wrapped_under_its_name_only() -> None:
    talk = Talk()
    for key in (None, "k"):
        talk.sessions.failed(talk.ask(user("tell me"), key=key).turn)
    other = talk.ask(wrapped("tell me"))
    assert (other.opened, other.turn.index) == (True, 0)
    assert talk.ask(wrapped("tell me"), key="k").turn.id == "k.0"


def test_a_failed_question_with_another_clock_is_the_same_turn() -> None:
    talk = Talk()
    failed = talk.ask(system("10:00"), user("tell me"))
    talk.answer(failed, bot("half an ans"), delivered=False, aborted=True)
    again = talk.ask(system("10:01"), user("tell me"))
    assert again.turn.id == failed.turn.id
    talk.sessions.failed(again.turn)
    assert talk.ask(system("10:01"), user("tell me")).turn.id == failed.turn.id


@pytest.mark.parametrize(
    "said",
    [
        *("tell me more", "please tell me", "no", "forget it.\ntell me\nsomething else", "tell me\n\nsomething else"),
        *("something else\n\ntell me", "[this]\nor that:\ntell me", "[this]\ntell me\nsomething else"),
    ],
)
def test_other_words_after_a_failure_are_another_turn(said: str) -> None:
    talk = Talk()
    talk.exchange(user("a"), key="k")
    talk.sessions.failed(talk.ask(user("a"), bot("ok"), user("tell me"), key="k").turn)
    assert talk.ask(user("a"), bot("ok"), user(said), key="k").turn.index == 2


def test_an_answered_question_that_comes_back_wrapped_is_another_turn() -> None:
    talk = Talk()
    talk.exchange(user("tell me"), key="k")
    assert talk.ask(wrapped("tell me"), key="k").turn.index == 1


def test_a_failure_is_forgotten_with_its_session() -> None:
    talk = Talk(timeout_s=60)
    talk.sessions.failed(talk.ask(system("1"), user("tell me")).turn)
    talk.clock.now += 61
    assert [e.session.id for e in talk.sessions.expired()] == ["s1"]
    assert talk.ask(system("2"), user("tell me")).session.id == "s2"


@pytest.mark.parametrize(
    ("key", "is_doubtful", "messages", "kind"),
    [
        pytest.param("k", True, (user("condense"),), "side", id="no tools, a new root"),
        pytest.param("k", False, (user("condense"),), "main", id="said to be main, or with tools"),
        pytest.param("k", True, (user("a"), bot("ok"), user("b")), "main", id="no tools, but it goes on"),
        pytest.param("other", True, (user("condense"),), "main", id="a session without tools"),
    ],
)
def test_upkeep_is_told_by_its_place(key: str, is_doubtful: bool, messages: tuple[Message, ...], kind: str) -> None:
    talk = Talk()
    talk.exchange(user("a"), key="k", has_tools=True)
    assert talk.ask(*messages, key=key, is_doubtful=is_doubtful).turn.kind == kind


def test_a_side_turn_with_tools_makes_no_session_of_tools() -> None:
    talk = Talk()
    talk.exchange(user("a"), key="k", has_tools=True, kind="side")
    assert talk.ask(user("b"), key="k", is_doubtful=True).turn.kind == "main"


def test_nothing_follows_a_side_turn() -> None:
    talk = Talk()
    talk.exchange(user("a"), kind="side")
    after = talk.ask(user("a"), bot("ok"), user("b"))
    assert (after.turn.parent, after.next_state) == (0, None)


def test_a_subagent_with_its_own_words_is_a_session_of_its_own() -> None:
    talk = Talk()
    parent = talk.exchange(system("agent"), user("do it all"))
    child = talk.ask(system("subagent"), user("do this part"))
    assert child.session.id != parent.session.id


def test_a_side_request_belongs_to_the_session_but_tells_nothing() -> None:
    talk = Talk()
    talk.exchange(user("a"))
    side = talk.exchange(user("a"), bot("ok"), user("heartbeat"), kind="side", answer="HEARTBEAT_OK")
    assert (side.turn.parent, side.next_state) == (0, None)
    main = talk.ask(user("a"), bot("ok"), user("b"))
    assert main.next_state is not None
    assert main.next_state.index == 0


def test_users_never_meet() -> None:
    talk = Talk()
    mine = talk.exchange(user("a"), key="k")
    theirs = talk.exchange(user("a"), key="k", user="bob")
    assert mine.session.id != theirs.session.id
    stolen = talk.ask(user("a"), bot("ok"), user("b"), user="eve")
    assert stolen.opened
    assert stolen.next_state is None
    assert session_id("local", "bob/k") != session_id("bob", "k")


def test_a_session_expires_and_its_last_answer_dangles() -> None:
    talk = Talk(timeout_s=60)
    talk.exchange(user("a"))
    talk.exchange(user("a"), bot("ok"), user("b"), answer="last")
    talk.exchange(user("x"), kind="side", key="side")
    talk.clock.now += 59
    assert list(talk.sessions.expired()) == []
    assert talk.sessions.seconds_to_next_expiry() == pytest.approx(1.0)
    talk.clock.now += 1
    ended = {e.session.id: [t.index for t in e.dangling] for e in talk.sessions.expired()}
    assert ended == {"s1": [1], "side": []}
    assert talk.ask(user("a"), bot("ok"), user("b"), bot("last"), user("c")).opened


def test_a_running_request_keeps_its_session_open() -> None:
    talk = Talk(timeout_s=60)
    running = talk.ask(user("a"))
    talk.clock.now += 1000
    assert list(talk.sessions.expired()) == []
    assert talk.sessions.seconds_to_next_expiry() > 0
    talk.answer(running, bot("ok"))
    talk.clock.now += 61
    assert [e.session.id for e in talk.sessions.expired()] == ["s1"]


def test_a_session_comes_back_from_the_store_as_it_was() -> None:
    before = Talk()
    first = before.exchange(user("a"), answer="A")
    second = before.ask(user("a"), bot("A"), user("b"))
    chain = str(second.trace.then(bot("B")))
    before.answer(second, bot("B"), delivered=False)
    outline = SessionOutline(
        session=second.session,
        turns=(
            TurnOutline(
                index=0,
                parent=None,
                kind="main",
                request_digest=first.turn.digest,
                chain=str(first.trace.then(bot("A"))),
                finish_reason="stop",
                delivered=True,
                has_next_state=True,
            ),
            TurnOutline(
                index=1,
                parent=0,
                kind="main",
                request_digest=second.turn.digest,
                chain=chain,
                finish_reason="stop",
                delivered=False,
                has_next_state=False,
            ),
        ),
    )
    after = Talk()
    after.sessions.restore(outline)
    again = after.ask(user("a"), bot("A"), user("b"))
    assert (again.turn.id, again.replay) == (second.turn.id, True)
    third = after.ask(user("a"), bot("A"), user("b"), bot("B"), user("c"))
    assert (third.turn.index, third.turn.parent) == (2, 1)
    assert third.next_state is not None


@pytest.mark.parametrize("kind", ["main", "side"])
def test_a_session_of_tools_is_one_after_a_restart_too(kind: TurnKind) -> None:
    before = Talk()
    first = before.exchange(user("a"), key="k")
    turn = TurnOutline(
        index=0,
        parent=None,
        kind=kind,
        request_digest=first.turn.digest,
        chain=str(first.trace.then(bot("ok"))),
        finish_reason="stop",
        delivered=True,
        has_next_state=False,
        has_tools=True,
    )
    after = Talk()
    after.sessions.restore(SessionOutline(session=first.session, turns=(turn,)))
    upkeep = after.ask(user("condense"), key="k", is_doubtful=True)
    assert upkeep.turn.kind == ("side" if kind == "main" else "main")


@pytest.mark.parametrize(("user_name", "key", "shown"), [("bob", "B1", "bob/B1"), ("local", "a/b", "local/a/b")])
def test_an_open_session_is_found_by_its_name_and_by_its_id(user_name: str, key: str, shown: str) -> None:
    talk = Talk()
    assert talk.exchange(user("a"), user=user_name, key=key).session.id == shown
    talk.exchange(user("a"), user=user_name, key=f"{key}:3")
    talk.exchange(user("a"), user=user_name, key="other")
    assert talk.sessions.open_as(user_name, key) == [shown, f"{shown}:3"]
    assert talk.sessions.open_as(user_name, shown) == [shown, f"{shown}:3"]
    assert talk.sessions.open_as("eve", shown) == talk.sessions.open_as("eve", key) == []


def test_a_name_comes_before_an_id_that_reads_alike() -> None:
    talk = Talk()
    talk.exchange(user("a"), user="bob", key="B1")
    talk.exchange(user("a"), user="bob", key="bob/B1")
    assert talk.sessions.open_as("bob", "bob/B1") == ["bob/bob/B1"]


def test_conversations_that_differ_in_their_system_prompt_alone_are_told_apart() -> None:
    talk = Talk()
    poet = talk.exchange(system("poet"), user("hi"), context=b"poet")
    coder = talk.exchange(system("coder"), user("hi"), context=b"coder")
    reaction = talk.ask(system("poet"), user("hi"), bot("ok"), user("a poem"), context=b"poet")
    assert reaction.session.id == poet.session.id != coder.session.id


def test_an_inferred_session_of_another_user_cannot_be_named() -> None:
    talk = Talk()
    theirs = talk.exchange(user("a"), user="eve")
    mine = talk.ask(user("b"), key=theirs.session.id)
    assert mine.session.id != theirs.session.id
    assert talk.sessions.knows("eve", theirs.session.id)


PRIVATE = (user("my secret"), bot(TELLING))
COMPACTED = (user("a summary of what was said"), bot("understood"))


@pytest.mark.parametrize("key", [None, "another name"])
@pytest.mark.parametrize("history", [PRIVATE, (*COMPACTED, *PRIVATE), (*COMPACTED, PRIVATE[1])])
def test_who_goes_on_with_a_private_conversation_that_ended_is_opted_out(
    history: tuple[Message, ...], key: str | None
) -> None:
    talk = Talk()
    first = talk.exchange(PRIVATE[0], answer=TELLING, opted_out=True)
    talk.sessions.end(first.session.id)
    later = talk.exchange(*history, user("and on"), key=key)
    assert later.opened
    assert later.session.opted_out
    assert talk.ask(*history, user("and on"), bot("ok"), user("more"), key=key).session.opted_out


def test_a_private_conversation_that_is_open_is_private_under_another_name_too() -> None:
    talk = Talk()
    talk.exchange(PRIVATE[0], answer=TELLING, opted_out=True)
    assert talk.ask(*PRIVATE, user("and on"), key="another name").session.opted_out


def test_what_a_restart_is_told_of_private_conversations_keeps_them_so() -> None:
    talk, restarted = Talk(), Talk()
    first = talk.exchange(PRIVATE[0], answer=TELLING, opted_out=True)
    assert first.turn.fingerprint is not None
    restarted.sessions.keep_private([first.turn.fingerprint])
    assert restarted.ask(*PRIVATE, user("and on")).session.opted_out
    assert not restarted.ask(*PRIVATE, user("and on"), user="ann").session.opted_out


@pytest.mark.parametrize("opted_out", [False, True])
def test_nobody_else_is_opted_out_by_a_private_conversation(opted_out: bool) -> None:
    """Short answers are given again and again: "ok" behind other words is nobody's."""
    talk = Talk()
    talk.sessions.end(talk.exchange(user("hi"), answer="ok", opted_out=opted_out).session.id)
    assert not talk.ask(user("something else"), bot("ok"), user("and on")).session.opted_out
    assert not talk.ask(user("something"), bot("yes"), user("hi"), bot("ok"), user("and on")).session.opted_out
    assert not talk.ask(user("hi")).session.opted_out
    assert talk.ask(user("hi"), bot("ok"), user("and on"), digest="d").session.opted_out is opted_out


def test_a_session_that_is_to_end_does_so_when_its_last_request_has() -> None:
    talk = Talk()
    slow, quick = talk.ask(user("slow"), key="k"), talk.ask(user("quick"), key="k")
    talk.answer(quick, bot("ok"))
    assert talk.sessions.end("k") is None
    assert talk.sessions.end_if_wished("k") is None
    talk.answer(slow, bot("ok"))
    ended = talk.sessions.end_if_wished("k")
    assert ended is not None
    assert {t.index for t in ended.dangling} == {0, 1}


def test_a_request_for_several_choices_is_never_a_retry_but_stays_in_its_session() -> None:
    talk = Talk()
    first = talk.ask(user("hi"), may_repeat=False)
    talk.sessions.failed(first.turn)
    again = talk.ask(user("hi"), may_repeat=False)
    assert (again.session.id, again.turn.index) == (first.session.id, 1)


def attempt(number: int) -> Episode:
    return Episode(id=f"e-{number}", environment="terminal", task="t", group="g", attempt=number, group_size=2)


def test_attempts_that_begin_with_equal_words_are_sessions_of_their_own() -> None:
    talk = Talk()
    task = user("Count the lines.")
    first, second = (talk.exchange(task, answer=TELLING, episode=attempt(number)) for number in (0, 1))
    assert first.session.id != second.session.id
    assert [one.session.episode for one in (first, second)] == [attempt(0), attempt(1)]
    on = talk.ask(task, bot(TELLING), user("Go on."), episode=attempt(0))
    assert (on.session.id, on.turn.parent) == (first.session.id, 0)
    assert talk.ask(task, bot(TELLING), user("Go on.")).parent is None  # the person who runs it is another owner


def test_an_attempt_goes_on_after_a_restart() -> None:
    before, after = Talk(), Talk()
    task = user("Count the lines.")
    placed = before.exchange(task, answer=TELLING, episode=attempt(1))
    outline = TurnOutline(
        index=0,
        parent=None,
        kind="main",
        request_digest=placed.turn.digest,
        chain=str(placed.turn.fingerprint),
        finish_reason="stop",
        delivered=True,
        has_next_state=False,
    )
    after.sessions.restore(SessionOutline(session=placed.session, turns=(outline,)))
    on = after.ask(task, bot(TELLING), user("Go on."), episode=attempt(1))
    assert (on.session.id, on.turn.parent) == (placed.session.id, 0)
