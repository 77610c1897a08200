"""A topic that is deleted and made anew is found out, even while an older question about it is not answered yet."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from merlot.errors import UnavailableError
from merlot.streams.protocol import TopicGoneError

confluent_kafka = pytest.importorskip("confluent_kafka")

from merlot.streams import kafka  # noqa: E402 - needs the extra

OLD, NEW = confluent_kafka.Uuid(1, 1), confluent_kafka.Uuid(2, 2)


class FakeBrokers:
    """Brokers that answer as the test says, and a client of theirs."""

    def __init__(self) -> None:
        self.questions: list[Future[Any]] = []
        self.answers: list[Any] = []

    def __call__(self, config: object) -> FakeBrokers:
        return self

    def describe_topics(self, topics: object, request_timeout: float) -> dict[str, Future[Any]]:
        question = Future[Any]()
        self.questions.append(question)
        if self.answers:
            answer(question, self.answers.pop(0))
        return {"t": question}


def answer(question: Future[Any], identity: object) -> None:
    question.set_result(SimpleNamespace(topic_id=identity))


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> FakeBrokers:
    brokers = FakeBrokers()
    monkeypatch.setattr(kafka, "AdminClient", brokers)
    monkeypatch.setattr(kafka, "QUIET_ASK_S", 0.05)
    return brokers


def same_topic(identity: str) -> Any:
    return kafka._SameTopic("t", {"log_level": 0}, identity)


def test_a_question_of_before_the_topic_was_made_anew_is_not_waited_for(brokers: FakeBrokers) -> None:
    topic = same_topic(str(OLD))
    topic.look()
    [before] = brokers.questions
    brokers.answers = [NEW]
    with pytest.raises(TopicGoneError, match="made anew"):
        topic.make_sure()
    answer(before, OLD)
    with pytest.raises(TopicGoneError):
        topic.look()


def test_a_topic_that_is_still_the_same_is_read_on(brokers: FakeBrokers) -> None:
    topic = same_topic(str(OLD))
    brokers.answers = [OLD]
    topic.make_sure()
    assert topic.identity == str(OLD)


def test_without_an_answer_nobody_is_sure(brokers: FakeBrokers) -> None:
    with pytest.raises(UnavailableError, match="do not say whether the topic is still the same"):
        same_topic(str(OLD)).make_sure()


def test_a_topic_without_an_id_needs_no_answer(brokers: FakeBrokers) -> None:
    topic = same_topic("")
    topic.make_sure()
    answer(brokers.questions[0], OLD)
    assert topic.identity == str(OLD), "the one that is seen first"
