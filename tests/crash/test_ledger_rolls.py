"""The ledger's own segments, when power is cut while it goes from one to the next."""

from __future__ import annotations

import random
from unittest.mock import patch

import pytest

from sparklog.format.names import log_name
from sparklog.logdir.ledger import LEDGER_DIR, LedgerWriter, ledger_bases, ledger_path
from sparklog.service import verify
from sparklog.testing.crashfs import CrashFS
from tests.crash.harness import ROOT, TOPIC, World, open_log, quick, table

CUTS = 10  # of each moment


@pytest.mark.parametrize("killed", [False, True], ids=["a cut", "a kill, then a cut"])
def test_no_index_is_left_behind(killed: bool) -> None:
    """A segment's indexes are made anew where the cut took them, or are durable by then.

    They come with the roll for a record that may be whole though they aren't.
    """
    with quick(), patch.object(LedgerWriter, "segment_bytes", 900):
        world = World.started()
        moments: list[CrashFS] = []
        world.fs.on_call = lambda call: (
            LEDGER_DIR in call.path and moments.append(world.fs.kill_clone())
        )
        before = bases = ledger_bases(world.fs, ROOT)
        while bases == before:
            moments.clear()
            world.opened.append(TOPIC, table([b"x"]), partition=0)
            bases = ledger_bases(world.fs, ROOT)
        world.fs.on_call = None
        assert len(moments) > 5
        newest = f"{ledger_path(ROOT)}/{log_name(bases[-1])}"
        judged = 0
        for at, fs in enumerate(moments):
            if killed:  # its successor completes, or undoes, what it did, and goes on
                open_log(fs, world.clock).append(TOPIC, table([b"z"]), partition=0)
            for seed in range(CUTS):
                disk = fs.crash_clone(random.Random(at * CUTS + seed), "random")
                if not disk.exists(newest) or not disk.size(newest):
                    continue
                judged += 1
                open_log(disk, world.clock).close()
                found = verify(ROOT, fs=disk, clock=world.clock)
                assert found.ok, (at, seed, found.findings)
        assert judged > CUTS
