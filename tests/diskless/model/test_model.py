"""The protocol holds under every schedule, and under none without one of its rules."""

import logging
from collections.abc import Iterator

import pytest

from tests.depth import DELETION_SEEDS, MODEL_SEEDS, MODEL_SEEDS_A_TEST
from tests.diskless.model.mutations import MUTATIONS, Mutation, first_seed
from tests.diskless.model.simulation import DELETIONS, simulate
from tests.diskless.model.switching import PLAYED

SEEDS_AROUND = 60
"""Seeds that are tried from the known one on, in case that requests are made in another order."""
COSTLY = {"missing", "void", "group"}
"""Rules whose schedules take several seconds: from depth ci on."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The library warns of each store that is away."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", range(0, MODEL_SEEDS, MODEL_SEEDS_A_TEST))
def test_what_is_promised_holds(first: int) -> None:
    for seed in range(first, first + MODEL_SEEDS_A_TEST):
        simulate(seed)


@pytest.mark.parametrize("first", range(0, DELETION_SEEDS, MODEL_SEEDS_A_TEST))
def test_deleted_topics_are_there_until_they_are_given_up(first: int) -> None:
    for seed in range(first, first + MODEL_SEEDS_A_TEST):
        simulate(seed, DELETIONS)


@pytest.mark.parametrize(
    "mutation",
    [
        pytest.param(each, id=each.rule, marks=pytest.mark.deep if each.rule in COSTLY else ())
        for each in (*MUTATIONS, *PLAYED)
    ],
)
def test_each_rule_is_needed(mutation: Mutation) -> None:
    seeds = range(mutation.seed, mutation.seed + SEEDS_AROUND)
    assert first_seed(mutation, seeds), f"nothing shows that {mutation.without}"
