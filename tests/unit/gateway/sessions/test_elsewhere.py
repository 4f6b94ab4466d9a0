"""Sessions that another process on the same store answered in, ended, or opted out."""

from __future__ import annotations

from dataclasses import replace

from openclaw_rl.gateway.sessions.placement import Placement
from openclaw_rl.types import Session, SessionOutline, TurnOutline
from tests.unit.gateway.sessions.test_placement import TELLING, Talk, bot, user


def row(placed: Placement, answer: str, *, index: int | None = None, finish: str = "stop") -> TurnOutline:
    turn = placed.turn
    return TurnOutline(
        index=turn.index if index is None else index,
        parent=turn.parent,
        kind=turn.kind,
        request_digest=turn.digest,
        chain=str(placed.trace.then(bot(answer))),
        finish_reason=finish,  # type: ignore[arg-type]
        delivered=True,
        has_next_state=False,
    )


def outline(session: Session, *rows: TurnOutline) -> SessionOutline:
    return SessionOutline(session=session, turns=rows)


def test_a_session_that_began_elsewhere_goes_on_here_and_back_there() -> None:
    a, b = Talk(), Talk()
    first = a.exchange(user("a"), answer="A")
    rows = [row(first, "A")]
    b.sessions.learn(outline(first.session, *rows))
    second = b.exchange(user("a"), bot("A"), user("b"), answer="B")
    assert (second.session.id, second.turn.index, second.turn.parent) == (first.session.id, 1, 0)
    rows.append(row(second, "B"))
    a.sessions.learn(outline(second.session, *rows))
    a.sessions.learn(outline(second.session, *rows))
    third = a.ask(user("a"), bot("A"), user("b"), bot("B"), user("c"))
    assert (third.session.id, third.turn.index, third.turn.parent) == (first.session.id, 2, 1)
    assert a.ask(user("a"), bot("A"), user("other")).turn.index == 3


def test_the_answer_to_a_request_that_failed_here_is_known_when_it_was_given_there() -> None:
    here = Talk()
    failed = here.ask(user("a"))
    here.sessions.failed(failed.turn)
    here.sessions.learn(outline(failed.session, replace(row(failed, "A"), delivered=False)))
    again = here.ask(user("a"))
    assert (again.turn.id, again.replay) == (failed.turn.id, True)


def test_a_running_turn_stays_as_it_is() -> None:
    here = Talk()
    running = here.ask(user("a"))
    here.sessions.learn(outline(running.session, row(running, "other", finish="abort")))
    here.answer(running, bot("A"))
    assert here.ask(user("a"), bot("A"), user("b")).turn.parent == running.turn.index


def test_what_ended_there_is_over_here_and_what_opted_out_stays_private() -> None:
    here = Talk()
    first = here.exchange(user("a"), answer=TELLING)
    ended = replace(first.session, closed_at=2000.0, opted_out=True)
    here.sessions.learn(outline(ended, row(first, TELLING)))
    assert not here.sessions.is_open(first.session.id)
    again = here.ask(user("a"), bot(TELLING), user("b"))
    assert again.session.id != first.session.id
    assert again.session.opted_out
    other = Talk()
    other.sessions.learn(outline(ended, row(first, TELLING)))
    assert other.ask(user("a"), bot(TELLING), user("b")).session.opted_out, "also where it never was open"


def test_who_opts_out_there_is_opted_out_here() -> None:
    here = Talk()
    first = here.exchange(user("a"), answer="A")
    here.sessions.learn(outline(replace(first.session, opted_out=True), row(first, "A")))
    assert here.ask(user("a"), bot("A"), user("b")).session.opted_out


def test_two_turns_that_got_one_number_get_two() -> None:
    """The numbers are the store's: who asked it first keeps the lower one."""
    here = Talk()
    one, two = here.ask(user("a"), key="k"), here.ask(user("b"), key="k")
    assert (one.turn.index, two.turn.index) == (0, 1)
    here.sessions.renumber(one.turn, 1)  # another process has 0
    here.sessions.renumber(two.turn, 2)
    here.answer(one, bot("A"))
    here.answer(two, bot("B"))
    assert {turn.index for turn in here.sessions.turns(one.session.id)} == {1, 2}
    assert here.ask(user("a"), bot("A"), user("c"), key="k").turn.parent == 1
    assert here.ask(user("b"), bot("B"), user("c"), key="k").turn.parent == 2
    assert here.sessions.sibling(one, index=7).index == 7
    assert here.ask(user("d"), key="k").turn.index == 8
