"""The lock page's body: its bytes stay, and what isn't one leads to recovery from the files."""

import json
import logging
from pathlib import Path

import crc32c
import pyarrow as pa
import pytest

import sparklog
from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError, PartitionOfflineError
from sparklog.logdir import lock
from sparklog.logdir.intent import Intent, decode_body, encode_body
from sparklog.logdir.lock import LOCK_NAME
from sparklog.logdir.partition.segment_swap import SegmentSwap
from sparklog.logdir.partition.truncation import SegmentState

KEY = TopicPartition("t", 1)
SWAP = SegmentSwap(base=0, parts=("0.index",), log=(5, 77), covered=(10,), trailing=(20, 30))
BODIES = {  # as they were written while they were plain dicts
    "idle": b"",
    "step": b'{"ledger": [0, 120, 2], "logs": [["t", 1, [5, 60, 9]]], "making": ["/log/u-0"]}',
    "swap": b'{"ledger": [0, 120, 2], "logs": [], "making": [], "swap": ["t", 1, {"base": 0, '
    b'"parts": ["0.index"], "log": [5, 77], "covered": [10], "trailing": [20, 30]}]}',
    "offline": b'{"offline": [["t", 1, "gone", "/log/t-1", null, 3, 9, true], '
    b'["t", 2, "bad", "/log/t-2", 61, 0, null, false]]}',
}


@pytest.mark.parametrize("name", BODIES)
def test_the_bytes_stay(name: str) -> None:
    assert encode_body(*decode_body(BODIES[name])) == BODIES[name]


def test_what_they_say() -> None:
    ledger = SegmentState(0, 120, 2)
    step = Intent(ledger=ledger, logs={KEY: SegmentState(5, 60, 9)}, making=("/log/u-0",))
    assert decode_body(BODIES["step"]) == (step, {})
    assert decode_body(BODIES["swap"]) == (Intent(ledger=ledger, swap=(KEY, SWAP)), {})
    _, offline = decode_body(BODIES["offline"])
    assert [type(e) for e in offline.values()] == [PartitionOfflineError, DataCorruptionError]
    assert (offline[KEY].first, offline[KEY].end) == (3, 9)


@pytest.mark.parametrize("field", ["logs", "making"])
def test_what_is_none(field: str) -> None:
    fields = json.loads(BODIES["step"])
    for wrong in ({k: v for k, v in fields.items() if k != field}, {**fields, field: 7}):
        with pytest.raises(ValueError, match="the page is not of this version"):
            decode_body(json.dumps(wrong).encode())


def test_an_unknown_form_leads_to_full_recovery(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log"
    log = sparklog.open(path, "rw")
    log.create_topic("t")
    log.append("t", pa.table({"value": ["a"]}))
    raw = bytearray((path / LOCK_NAME).read_bytes())
    body = b'{"ledger": {"newer": 1}}'
    raw[lock.BODY_AT :] = body
    raw[92:100] = len(body).to_bytes(4, "big") + crc32c.crc32c(body).to_bytes(4, "big")
    raw[100:104] = crc32c.crc32c(bytes(raw[:100])).to_bytes(4, "big")
    with open(path / LOCK_NAME, "r+b") as file:
        file.write(raw)
    with caplog.at_level(logging.WARNING):
        log.append("t", pa.table({"value": ["b"]}))
    assert "the page is not of this version of sparklog" in caplog.text
    assert "recovering after an unclean stop" in caplog.text
    assert log.offsets("t") == {0: (0, 2)}
    log.close()
