"""Makes the backups beside this file, with sparklog at 02014a42. Later versions write others.

Run: python -m tests.golden.backups.make
"""

import os
import shutil
import tarfile
import tempfile
from pathlib import Path

import pyarrow as pa

import sparklog
from sparklog.checkpoint import archive, import_
from sparklog.log.commit import Identity
from sparklog.storage.staging import Framing
from sparklog.tiered.keyring import Keyring

HERE = Path(__file__).parent
CHECKPOINTS = HERE.parent / "checkpoints"


def checkpoint(root: Path, name: str) -> Path:
    """Unpack one of Spark's checkpoints."""
    with tarfile.open(CHECKPOINTS / f"{name}.tar.xz") as tar:
        tar.extractall(root, filter="data")
    return root / name


def write_log(path: str, query: str) -> None:
    """Write the log of the query's sink: a record of 300 bytes for each of 14 batches."""
    with sparklog.open(path, "rw") as log:
        log.create_topic("t")
        for batch in range(14):
            stager = log.stager(Framing())
            rows = pa.table({"value": [f"{batch}".ljust(300)]}).to_batches()[0]
            stager.add(log.topic("t"), rows)
            identity = Identity(writer=query, batch=batch, fingerprint=f"{batch}")
            log.commit(stager.finish(), identity=identity)


def make(root: Path) -> None:
    """Make four backups below `root`/out."""
    out = root / "out"
    for name in ("log-dir", "records", "store", "encrypted"):
        (out / name).mkdir(parents=True)
    path = checkpoint(root, "changelog")
    query = (path / "metadata").read_text().partition('"id":"')[2].partition('"')[0]
    write_log(str(root / "log"), query)
    archive(path, f"file://{out}/log-dir", batch=11, log=root / "log")
    (root / "bucket").mkdir()
    write_log(f"file://{root}/bucket", query)
    archive(path, f"file://{out}/store", batch=11, log=f"file://{root}/bucket")
    ring = Keyring({"old": bytes(range(32))}, "old")
    archive(checkpoint(root, "hdfs"), f"file://{out}/encrypted", keyring=ring)
    ids = checkpoint(root, "ids")
    import_(ids)
    archive(ids, f"file://{out}/records")
    for name in os.listdir(out):
        with tarfile.open(HERE / f"{name}.tar.xz", "w:xz") as tar:
            tar.add(out / name, name)


if __name__ == "__main__":
    directory = Path(tempfile.mkdtemp())
    try:
        make(directory)
    finally:
        shutil.rmtree(directory)
