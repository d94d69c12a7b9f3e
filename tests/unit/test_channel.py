"""A worker asks for the machine in the middle of an answer, and the parent hears it before the answer."""

import threading
from collections.abc import Iterator
from multiprocessing import Pipe

import pytest

from common.python.workers.channel import WANTS, Channel, Forged


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    ours, theirs = Pipe()
    yield Channel(ours), Channel(theirs)
    ours.close()
    theirs.close()


def test_what_is_wanted_is_heard_before_the_answer_and_granted(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends
    told: list[bool] = []

    def work() -> None:
        word, _, _ = theirs.asked()
        for _ in range(2):
            with theirs.alone() as others:
                with theirs.alone() as again:  # as a library does inside another
                    told.append(again)
                told.append(others)
        theirs.reply(word, {"value": 7})

    ours.ask("prepare", {})
    worker = threading.Thread(target=work)
    worker.start()
    heard = []
    while WANTS in (found := ours.answer(10)):
        heard.append(found[WANTS])
        ours.grant(others=len(heard) == 1)
    worker.join()
    assert heard == [True, False, True, False]
    assert told == [False, True, False, False]
    assert found["value"] == 7


def test_the_machine_is_given_back_where_what_is_inside_fails(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends

    def work() -> None:
        theirs.asked()
        with pytest.raises(ValueError, match="no"), theirs.alone():
            raise ValueError("no")

    ours.ask("prepare", {})
    worker = threading.Thread(target=work)
    worker.start()
    heard = []
    for _ in range(2):
        heard.append(ours.answer(10)[WANTS])
        ours.grant(others=False)
    worker.join()
    assert heard == [True, False]


@pytest.mark.parametrize("more", [{}, {"value": 1, WANTS: True}, {"value": 1, "error": "no"}])
def test_a_line_that_is_no_answer_or_more_than_one_is_forged(
    ends: tuple[Channel, Channel], more: dict[str, object]
) -> None:
    ours, theirs = ends
    ours.ask("prepare", {})
    theirs.reply(theirs.asked()[0], more)
    with pytest.raises(Forged):
        ours.answer(10)
