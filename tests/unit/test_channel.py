"""What comes back on a worker's connection is an answer to what was asked, or it is forged."""

from collections.abc import Iterator
from multiprocessing import Pipe

import pytest

from common.python.workers.channel import WORD, Channel, Forged

Ends = tuple[Channel, Channel]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = Pipe()
    yield Channel(ours), Channel(theirs)
    ours.close()
    theirs.close()


def test_a_question_is_answered_by_its_word(ends: Ends) -> None:
    ours, theirs = ends
    ours.ask("prepare", {"names": ["a"]})
    word, command, arguments = theirs.asked()
    assert (command, arguments) == ("prepare", {"names": ["a"]})
    theirs.reply(word, {"value": 7})
    assert ours.answer(10)["value"] == 7


@pytest.mark.parametrize("answer", [{}, {"value": 1, "error": "no"}, {"value": 1, WORD: "another"}])
def test_a_line_that_is_no_answer_or_more_than_one_or_to_another_question_is_forged(
    ends: Ends, answer: dict[str, object]
) -> None:
    ours, theirs = ends
    ours.ask("prepare", {})
    theirs.reply(theirs.asked()[0], answer)
    with pytest.raises(Forged):
        ours.answer(10)


def test_half_a_line_ends_at_the_time_limit(ends: Ends) -> None:
    ours, theirs = ends
    ours.ask("prepare", {})
    theirs._connection.send_bytes(b"")
    with pytest.raises(TimeoutError):
        ours.answer(0.1)
