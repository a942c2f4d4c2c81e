"""Which copies count: of which history they are."""

import dataclasses

import pytest

from sparklog.tiered.remote_log_metadata.metadata_cache import is_within_leader_epochs
from tests.tiered.copies import copy

LINEAGE = [(1, 0), (2, 10), (3, 20)]


@pytest.mark.parametrize(
    ("epochs", "end", "ours"),
    [
        (((1, 0),), 10, True),
        (((1, 0),), 11, False),  # epoch 1 ended at 10 here
        (((1, 0), (2, 10)), 20, True),
        (((1, 0), (2, 9)), 20, False),
        (((1, 0), (2, 10)), 21, False),
        (((4, 0),), 5, False),
    ],
)
def test_lineage(epochs: tuple[tuple[int, int], ...], end: int, *, ours: bool) -> None:
    """RemoteLogManager.isRemoteSegmentWithinLeaderEpochs."""
    segment = dataclasses.replace(copy(0, end), epochs=epochs)
    assert is_within_leader_epochs(segment, LINEAGE) == ours
