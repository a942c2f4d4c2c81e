"""Which syncs the real file system gets, and in which order: what a power cut leaves hangs on it.

The simulated disk of tests/crash shows that these syncs are enough, and here strace shows that they
are made. The order is that of the PROTOCOL pages.
"""

import subprocess
import sys

import pytest

from tests import jars, kernel
from tests.jvm.probe import Probe, pack
from tests.kernel import Event, check_order
from tests.paths import ROOT

Operations = dict[str, list[Event]]
FIRST, SECOND = f"{0:020}.log", f"{1:020}.log"
LEDGER = f"log/__sparklog_commits-0/{FIRST}"

pytestmark = pytest.mark.skipif(bool(kernel.why_not()), reason=kernel.why_not() or "traced")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Operations:
    """What tests/kernel/program.py asks the kernel for."""
    home = tmp_path_factory.mktemp("kernel")
    root = home / "root"
    root.mkdir()
    command = [*kernel.prefix(home / "calls"), sys.executable, "-m", "tests.kernel.program", root]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return kernel.operations(home / "calls", root)


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Operations:
    """What `checkpoint writes` in tests/jvm/scala/Checkpoints.scala asks the kernel for."""
    home = tmp_path_factory.mktemp("kernel-jvm")
    root = home / "root"
    root.mkdir()
    with jars.or_skip("probe"):
        probe = Probe(prefix=kernel.prefix(home / "calls"))
    try:
        probe.call("checkpoint writes", pack([str(root).encode()]))
    finally:
        probe.close()
    return kernel.operations(home / "calls", root)


PUBLISHED = (
    "write log/sparklog.watermarks.tmp",
    "sync log/sparklog.watermarks.tmp",
    "rename log/sparklog.watermarks.tmp log/sparklog.watermarks",
)
COMMITTED = (f"write {LEDGER}", f"sync {LEDGER}", *PUBLISHED)

PYTHON: dict[str, list[tuple[str, ...]]] = {
    "log-dir-topic": [
        ("sync log/t-0/partition.metadata", "sync log/t-0", *COMMITTED),
        (f"sync log/t-0/{FIRST}", "sync log/t-0", *COMMITTED),
        ("sync log/sparklog.topics.tmp", "rename log/sparklog.topics.tmp log/sparklog.topics"),
    ],
    "log-dir-commit": [(f"write log/t-0/{FIRST}", f"sync log/t-0/{FIRST}", *COMMITTED)],
    "log-dir-roll": [
        (f"sync log/t-0/{FIRST}", "sync log/t-0", *COMMITTED),
        (f"sync log/t-0/{0:020}.index", "sync log/t-0", *COMMITTED),
        (f"write log/t-0/{0:020}.timeindex", f"sync log/t-0/{0:020}.timeindex", *COMMITTED),
        (f"sync log/t-0/{1:020}.snapshot", "sync log/t-0", *COMMITTED),
        (f"write log/t-0/{SECOND}", f"sync log/t-0/{SECOND}", "sync log/t-0", *COMMITTED),
    ],
    "log-dir-close": [
        (
            f"sync log/t-0/{SECOND}",
            "sync log/t-0",
            "write log/recovery-point-offset-checkpoint.tmp",
            "sync log/recovery-point-offset-checkpoint.tmp",
            "rename log/recovery-point-offset-checkpoint.tmp log/recovery-point-offset-checkpoint",
            "sync log/.kafka_cleanshutdown.tmp",
            "rename log/.kafka_cleanshutdown.tmp log/.kafka_cleanshutdown",
            "sync log",
        ),
    ],
    "tier": [
        (
            "write tier/t-0-*.log.*.partial",
            "sync tier/t-0-*.log.*.partial",
            "rename tier/t-0-*.log.*.partial tier/t-0-*.log",
            "write tier/t-0-*.manifest.*.partial",
            "sync tier/t-0-*.manifest.*.partial",
            "rename tier/t-0-*.manifest.*.partial tier/t-0-*.manifest",
            "sync tier/t-0-*",
            f"write log/__remote_log_metadata-0/{FIRST}",
        ),
    ],
    "bucket-topic": [
        ("sync bucket/ledger-*/*.partial", "link bucket/ledger-*/*.partial bucket/ledger-*/*",
         "sync bucket/ledger-*"),
    ],
    "bucket-commit": [
        (
            "write bucket/staged-*/*.partial",
            "sync bucket/staged-*/*.partial",
            "rename bucket/staged-*/*.partial bucket/staged-*/driver-*",
            f"sync bucket/staged-*/{0:020}",
            "write bucket/ledger-*/*.partial",
            "sync bucket/ledger-*/*.partial",
            "link bucket/ledger-*/*.partial bucket/ledger-*/*",
            "sync bucket/ledger-*",
        ),
        ("sync bucket", "write bucket/staged-*/*.partial"),
    ],
    "checkpoint-create": [("sync .",)],
    "checkpoint-write": [
        (f"write checkpoint/{FIRST}", f"sync checkpoint/{FIRST}"),
        ("sync checkpoint", f"write checkpoint/{FIRST}"),
    ],
    "checkpoint-clean": [
        (
            f"write checkpoint/{FIRST}.cleaned",
            f"sync checkpoint/{FIRST}.cleaned",
            f"rename checkpoint/{FIRST}.cleaned checkpoint/{FIRST}",
            "sync checkpoint",
        ),
    ],
}  # fmt: skip
"""Steps of each operation, in the order in which they reach the disk."""

OFFSETS = "checkpoint/sparklog/offsets"
JVM: dict[str, list[tuple[str, ...]]] = {
    "jvm-create": [
        (
            "sync checkpoint",
            "sync checkpoint/sparklog",
            "write checkpoint/sparklog/sparklog.lock",
            "sync checkpoint/sparklog/sparklog.lock",
        ),
    ],
    "jvm-first-write": [
        (
            f"write {OFFSETS}/leader-epoch-checkpoint.tmp",
            f"sync {OFFSETS}/leader-epoch-checkpoint.tmp",
            f"rename {OFFSETS}/leader-epoch-checkpoint.tmp {OFFSETS}/leader-epoch-checkpoint",
            f"sync {OFFSETS}",
            f"write {OFFSETS}/{FIRST}",
            f"sync {OFFSETS}/{FIRST}",
        ),
        ("sync checkpoint/sparklog", f"write {OFFSETS}/{FIRST}"),
    ],
    "jvm-write": [(f"write {OFFSETS}/*.log", f"sync {OFFSETS}/*.log")],
    "jvm-roll": [
        (f"sync {OFFSETS}", f"write {OFFSETS}/{2:020}.log", f"sync {OFFSETS}/{2:020}.log"),
    ],
    "jvm-delete": [(f"write {OFFSETS}/*.log", f"sync {OFFSETS}/*.log")],
    "jvm-clean": [
        (
            f"write {OFFSETS}/*.log.cleaned",
            f"sync {OFFSETS}/*.log.cleaned",
            f"rename {OFFSETS}/*.log.cleaned {OFFSETS}/*.log",
            f"sync {OFFSETS}",
        ),
    ],
    "jvm-replace": [("write small.next", "sync small.next", "rename small.next small", "sync .")],
    "jvm-directory": [("sync .", "sync a")],
    "jvm-snapshot": [("write 1.zip", "sync 1.zip"), ("write .1.zip.crc", "sync .1.zip.crc")],
}
"""The same of the checkpoint's log in Spark's JVM."""


@pytest.mark.parametrize("operation", PYTHON)
def test_python(python: Operations, operation: str) -> None:
    for steps in PYTHON[operation]:
        check_order(python[operation], *steps)


@pytest.mark.parametrize("operation", JVM)
def test_jvm(jvm: Operations, operation: str) -> None:
    for steps in JVM[operation]:
        check_order(jvm[operation], *steps)
