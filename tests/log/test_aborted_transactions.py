"""Aborted transactions end where their marker was, also if the cleaner has taken it away."""

import numpy as np
import pytest

from sparklog.format.batch import CONTROL, TRANSACTIONAL
from sparklog.format.scan import BATCH_DTYPE
from sparklog.log.aborted_transactions import AbortedFilter, AbortedTxn


def table(*batches: tuple[int, int, int]):
    """(producer, offset, attributes) -> batches of one record."""
    rows = np.zeros(len(batches), BATCH_DTYPE)
    rows["producer_id"] = [b[0] for b in batches]
    rows["base_offset"] = rows["last_offset"] = [b[1] for b in batches]
    rows["attributes"] = [TRANSACTIONAL | b[2] for b in batches]
    return rows


@pytest.mark.parametrize("marked", [True, False])
def test_what_is_kept(marked: bool) -> None:
    txns = [AbortedTxn(1, 0, 2), AbortedTxn(1, 4, 6), AbortedTxn(2, 1, 9)]
    data = [(1, 0, 0), (2, 1, 0), (1, 3, 0), (1, 4, 0), (2, 5, 0), (1, 7, 0), (2, 10, 0)]
    markers = [(1, 2, CONTROL), (1, 6, CONTROL), (2, 9, CONTROL)] if marked else []
    batches = table(*sorted(data + markers, key=lambda b: b[1]))
    kept = AbortedFilter(txns).keep(batches, lambda row: True)
    kept = kept[(kept["attributes"] & CONTROL) == 0]
    assert kept["base_offset"].tolist() == [3, 7, 10]
