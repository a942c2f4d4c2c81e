"""Bugs in checkpoints: as logs, reset and fork, backups."""

from tests.mutants.mutant import mutant

PARTITION = "checkpoint/log_backed/test_partition.py"
BACKUP = "checkpoint/backup/test_archiving.py"

MUTANTS = (
    mutant(
        "checkpoint-record-not-synced",
        "checkpoint/log_backed/partition_writer.py",
        "                    break\n            file.sync()\n",
        "                    break\n",
        PARTITION,
        "checkpoint/test_repair.py",
        "checkpoint/test_convert.py",
        "checkpoint/test_reset.py",
    ),
    mutant(
        "torn-checkpoint-record-not-cut",
        "checkpoint/log_backed/partition_writer.py",
        "    if segment.torn:\n",
        "    if segment.torn and segment.short and not segment.end:\n",
        PARTITION,
    ),
    mutant(
        "cleaning-forgets-the-last-offset",
        "checkpoint/log_backed/partition_writer.py",
        "        spans.add((int(last",
        "        print((int(last",
        PARTITION,
    ),
    mutant(
        "damaged-newest-record-skipped",
        "checkpoint/log_backed/partition.py",
        "if after >= place:",
        "if after >= (-1, 0):",
        PARTITION,
        "checkpoint/test_verify.py",
    ),
    mutant(
        "rewritten-segment-not-noticed",
        "checkpoint/log_backed/partition.py",
        'return found == _OVERHEAD.pack(last["base_offset"], last["size"] - LOG_OVERHEAD)',
        "return bool(found)",
        PARTITION,
    ),
    mutant(
        "checkpoint-value-crc-not-checked",
        "checkpoint/log_backed/partition.py",
        "if len(raw) < entry.size or crc32c(memoryview(raw)[CRC_START:]) != crc:",
        "if len(raw) < entry.size or not crc:",
        PARTITION,
    ),
    mutant(
        "reset-keeps-a-batch-too-many",
        "checkpoint/truncation.py",
        "return int(match[2]) > batch",
        "return int(match[2]) > batch + 1",
        "checkpoint/test_reset.py",
    ),
    mutant(
        "reset-keeps-later-state",
        "checkpoint/truncation.py",
        "name.version > batch + 1",
        "name.version > batch + 2",
        "checkpoint/test_reset.py",
        "checkpoint/test_fork.py",
    ),
    mutant(
        "reset-does-not-fence",
        "checkpoint/truncation.py",
        "    if is_reset:\n        _fence",
        "    if not is_reset:\n        _fence",
        "checkpoint/test_reset.py",
    ),
    mutant(
        "query-that-goes-on-is-reset",
        "checkpoint/reset.py",
        "if _plans(checkpoint) != before:",
        "if not _plans(checkpoint):",
        "checkpoint/test_reset.py",
    ),
    mutant(
        "backup-block-not-checked",
        "checkpoint/backup/repository.py",
        "if len(data) != size or hashlib.sha256(data).digest() != digest:",
        "if len(data) != size:",
        BACKUP,
    ),
    mutant(
        "prune-while-others-archive",
        "checkpoint/backup/pruning.py",
        "        if postponed:\n",
        "        if postponed and not doomed:\n",
        BACKUP,
    ),
    mutant(
        "prune-takes-the-newest",
        "checkpoint/backup/pruning.py",
        "older = held[: -max(1, keep or 1)]",
        "older = held[: -max(0, keep or 0)] if keep else held",
        BACKUP,
    ),
)
