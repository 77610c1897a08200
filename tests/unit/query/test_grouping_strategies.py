"""The strategy for GROUP BY, from facts alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from merlot.query.operators.grouping.choose import (
    LEAST_BYPASSED_DOCS,
    LEAST_PARTITIONED_DOCS,
    MAX_DENSE_SPACE,
    SMALL_SPACE,
    KeySample,
    Strategy,
    TargetFacts,
    TaskFacts,
    WorkFacts,
    choose,
    splits_keys,
)

SUM = WorkFacts(num_states=1, is_light=True, is_narrow=True, has_lists=False)
MANY = 1_000_000


def unread() -> int:
    """A fact that nothing may depend on."""
    raise AssertionError("the data was read")


def task(num_docs=MANY, *, space=None, share=0.1, reads_texts=False, **facts) -> TaskFacts:
    return replace(
        TaskFacts(
            num_docs=num_docs,
            num_docs_of_query=num_docs,
            max_groups=5 * MANY,
            has_stored_states=False,
            sample=lambda: KeySample(share, reads_texts),
            space=lambda: space,
        ),
        **facts,
    )


@pytest.mark.parametrize(
    ("num_docs", "space", "strategy"),
    [
        (1, SMALL_SPACE, Strategy.DENSE),
        (1, SMALL_SPACE + 1, Strategy.HASHED),
        (MANY, 2 * MANY, Strategy.DENSE),
        (MANY, 2 * MANY + 1, Strategy.HASHED),
        (4 * MANY, MAX_DENSE_SPACE, Strategy.DENSE),
        (4 * MANY, MAX_DENSE_SPACE + 1, Strategy.HASHED),
        (1, None, Strategy.ENCODED),
        (MANY, None, Strategy.ENCODED),
    ],
)
def test_arrays_hold_few_keys_or_about_as_many_as_there_are_docs(num_docs, space, strategy):
    assert choose(SUM, task(num_docs, space=space)) is strategy


def test_lists_are_encoded_however_few_keys_there_are():
    assert choose(replace(SUM, has_lists=True), task(1, space=2)) is Strategy.ENCODED


@pytest.mark.parametrize(
    ("share", "reads_texts", "bypasses"),
    [(0.99, False, True), (0.9, False, False), (0.9, True, True), (0.7, True, False)],
)
def test_docs_whose_keys_mostly_differ_bypass_grouping(share, reads_texts, bypasses):
    strategy = choose(SUM, task(space=5 * MANY, share=share, reads_texts=reads_texts))
    assert strategy is (Strategy.BYPASS if bypasses else Strategy.HASHED)


@pytest.mark.parametrize(
    ("work", "facts"),
    [
        (SUM, {"num_docs": LEAST_BYPASSED_DOCS - 1}),
        (SUM, {"max_groups": MANY - 1}),
        (SUM, {"has_stored_states": True}),
        (replace(SUM, is_light=False), {}),
        (replace(SUM, is_narrow=False), {}),
        (replace(SUM, has_lists=True), {}),
    ],
)
def test_no_sample_is_read_if_its_result_could_not_matter(work, facts):
    assert choose(work, task(**{"sample": unread, "space": 1, **facts})) is not Strategy.BYPASS


TARGET = TargetFacts(num_docs=MANY * 2, selects_all=True, has_stored_states=False, space=lambda: MANY)


@pytest.mark.parametrize(
    ("space", "splits"),
    [(None, False), (MANY // 4 - 1, False), (MANY // 4, True), (8 * MANY, True), (8 * MANY + 1, False)],
)
def test_keys_are_split_if_docs_have_few_of_each(space, splits):
    assert splits_keys(SUM, replace(TARGET, space=lambda: space)) is splits


def test_keys_are_not_split_if_their_arrays_would_be_too_large():
    assert not splits_keys(replace(SUM, num_states=40), TARGET)


@pytest.mark.parametrize(
    ("work", "target"),
    [
        (SUM, replace(TARGET, num_docs=LEAST_PARTITIONED_DOCS - 1)),
        (SUM, replace(TARGET, selects_all=False)),
        (SUM, replace(TARGET, has_stored_states=True)),
        (replace(SUM, is_light=False), TARGET),
        (replace(SUM, has_lists=True), TARGET),
    ],
)
def test_no_key_is_made_if_docs_are_to_be_split_anyway(work, target):
    assert not splits_keys(work, replace(target, space=unread))
