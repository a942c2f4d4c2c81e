"""What a checkpoint holds, for comparing."""

from pathlib import Path

import pyarrow as pa

from sparklog.checkpoint.files import Checkpoint
from sparklog.fs import LOCAL, FileSystem
from sparklog.log.commit import CommitResult
from sparklog.log.log import Log
from sparklog.testing.crashfs import CrashFS
from tests.micro_batches import commit_batch


def view(path: Path | str, fs: FileSystem = LOCAL) -> dict[str, bytes]:
    """Every path and its content, whichever way it is kept."""
    checkpoint = Checkpoint.open(str(path), fs)
    return {name: checkpoint.read(name) for name in checkpoint.paths()}


def tree(root: Path) -> dict[str, bytes]:
    """Every file below a directory, as it is."""
    return {
        str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()
    }


def load(fs: CrashFS, source: Path, target: str) -> None:
    """Put a directory's files onto a simulated disk, durably."""
    fs.mkdir(target)
    for path in sorted(source.rglob("*")):
        name = f"{target}/{path.relative_to(source)}"
        if path.is_dir():
            fs.mkdir(name)
        else:
            with fs.open(name, create=True) as file:
                file.pwrite(path.read_bytes(), 0)
                file.sync()
    for path in [source, *source.rglob("*")]:
        if path.is_dir():
            fs.sync_dir(f"{target}/{path.relative_to(source)}".removesuffix("/."))
    fs.sync_dir(str(Path(target).parent))


def commit(log: Log, writer: str, batch: int, fingerprint: str = "f") -> CommitResult:
    """A micro-batch of three records, "<batch> 0" to "<batch> 2", for topic t."""
    rows = pa.table({"value": [f"{batch} {n}" for n in range(3)]})
    return commit_batch(log, writer, batch, rows, fingerprint=f"{fingerprint}{batch}")


def read(log: Log) -> list[str]:
    """The values in topic t, in order."""
    return [v.decode() for v in log.read("t").read_all().column("value").to_pylist()]
