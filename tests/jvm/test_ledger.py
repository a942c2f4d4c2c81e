"""The ledger of runs, in which a checkpoint in an object store is kept."""

import struct

import pytest

from tests.depth import LEDGER_SEEDS, LEDGER_SEEDS_A_TEST
from tests.jvm.probe import Probe


@pytest.mark.parametrize("first", range(0, LEDGER_SEEDS, LEDGER_SEEDS_A_TEST))
def test_schedules(probe: Probe, first: int) -> None:
    """Lost, late and doubled requests; drivers that pause, give up and die: nothing is lost."""
    answer = probe.call("ledger schedules", struct.pack(">qi", first, LEDGER_SEEDS_A_TEST))
    (acknowledged,) = struct.unpack_from(">q", answer)
    assert answer[8:].decode() == ""
    assert acknowledged > LEDGER_SEEDS_A_TEST


def test_damage(probe: Probe) -> None:
    """Objects that are changed, cut or swapped are reported, or not read."""
    answer = probe.call("ledger damage")
    (reported,) = struct.unpack_from(">i", answer)
    assert answer[4:].decode() == ""
    assert reported > 200


@pytest.mark.parametrize(("runs", "age_ms", "oldest"), [(30, 2000, 19), (30, 500, 0), (8, 2000, 0)])
def test_ends_of_old_runs_are_kept(probe: Probe, runs: int, age_ms: int, oldest: int) -> None:
    """First entries and seals stay for a number of runs and for a time."""
    answer = probe.call("ledger ends", struct.pack(">qq", runs, age_ms))
    kept = dict(struct.iter_unpack(">qi", answer))
    assert list(kept) == list(range(oldest, runs))
    assert set(list(kept.values())[:-1]) == {2}


@pytest.mark.parametrize("first", range(0, LEDGER_SEEDS, LEDGER_SEEDS_A_TEST))
def test_commits_that_ride(probe: Probe, first: int) -> None:
    """A batch without a durable commit is repeated, from the state of the batch before it."""
    answer = probe.call("ride schedules", struct.pack(">qi", first, LEDGER_SEEDS_A_TEST))
    (acknowledged,) = struct.unpack_from(">q", answer)
    assert answer[8:].decode() == ""
    assert acknowledged > LEDGER_SEEDS_A_TEST
