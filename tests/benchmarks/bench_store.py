"""The object store beside plain fsspec, on a real S3 server on loopback; encryption by itself.

Client, server and disk share this machine's cores, so ratios count and not megabytes: the two
sides take turns, and each ratio is the median of the turns' ratios.
"""

import itertools
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from sparklog.tiered.encryption.envelope import new_data_key
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.target import open_store
from tests.benchmarks.table import Row, median_seconds, print_rows
from tests.tiered.s3 import S3Server, Unavailable

MIB = 1 << 20
SIZE = 64 * MIB
ROUNDS = 3


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def versus(name: str, ours: Callable[[int], object], plain: Callable[[int], object]) -> Row:
    """Take turns, each by the turn's number; the first turn doesn't count."""
    turns = [
        (seconds(lambda turn=turn: ours(turn)), seconds(lambda turn=turn: plain(turn)))
        for turn in range(ROUNDS + 1)
    ][1:]
    rate, beside = (SIZE / MIB / statistics.median(side) for side in zip(*turns, strict=True))
    ratio = statistics.median(theirs / mine for mine, theirs in turns)
    return Row(name, f"{rate:.0f} MiB/s", ratio, f"fsspec: {beside:.0f} MiB/s", ">= 0.8")


def store_rows(server: S3Server, home: Path) -> Iterable[Row]:
    import s3fs

    content = os.urandom(MIB) * (SIZE // MIB)
    source, target = home / "segment", home / "fetched"
    source.write_bytes(content)
    bucket = server.bucket()
    fs = s3fs.S3FileSystem(**server.options(), skip_instance_cache=True)
    store = open_store(bucket, server.options())
    pieces = [content[at : at + MIB] for at in range(0, SIZE, MIB)]
    store.put_stream("segment", pieces, SIZE)
    yield versus(
        "put_stream, 64 MiB",
        lambda turn: store.put_stream(f"ours-{turn}", pieces, SIZE),
        lambda turn: fs.put_file(str(source), f"{bucket}/plain-{turn}"),
    )
    for part in (4, 8):

        def sequential(_: int, step: int = part * MIB) -> None:
            for at in range(0, SIZE, step):
                store.get("segment", at, at + step)

        yield versus(
            f"get one after the other, {part} MiB each",
            sequential,
            lambda _: fs.get_file(f"{bucket}/segment", str(target)),
        )


def small_rows(server: S3Server) -> Iterable[Row]:
    """What a log in a bucket is made of: small objects, created and got one after the other."""
    import s3fs

    bucket = server.bucket()
    fs = s3fs.S3FileSystem(**server.options(), skip_instance_cache=True)
    store = open_store(bucket, server.options())
    number = itertools.count()
    for size, label, requests in ((4096, "4 KiB", 100), (MIB, "1 MiB", 20)):
        content = os.urandom(size)
        store.put("small", content)
        for what, ours, plain in (
            (
                "create",
                lambda data=content: store.create(f"n/{next(number):020}", data),
                lambda data=content: fs.pipe_file(f"{bucket}/n/{next(number):020}", data),
            ),
            ("get", lambda: store.get("small"), lambda: fs.cat_file(f"{bucket}/small")),
        ):
            turns = [(_rate(ours, requests), _rate(plain, requests)) for _ in range(ROUNDS + 1)][1:]
            rate, beside = (statistics.median(side) for side in zip(*turns, strict=True))
            ratio = statistics.median(mine / theirs for mine, theirs in turns)
            shown = f"s3fs: {beside:.0f}/s"
            yield Row(f"{what}, {label}", f"{rate:.0f}/s", ratio, shown, ">= 0.8")
    missed = _rate(lambda: store.get_many(["none"]), 300)
    yield Row("get of none: a poll of the head", f"{missed:.0f}/s")


def _rate(action: Callable[[], object], requests: int) -> float:
    """Requests a second, one after the other."""
    return requests / seconds(lambda: [action() for _ in range(requests)])


def encryption_rows() -> Iterable[Row]:
    key, _ = new_data_key(Keyring({"k": os.urandom(32)}, "k"), "A" * 22)
    pieces = [os.urandom(MIB)] * 64

    def seal() -> None:
        for _ in key.seal(pieces, 64 * MIB):
            pass

    stored = b"".join(key.seal(pieces[:1], MIB))

    def unseal() -> None:
        for _ in range(64):
            key.open_range(stored, 0, MIB, MIB, path="")

    for name, action in (("seal", seal), ("open, 1 MiB each", unseal)):
        rate = 64 * MIB / median_seconds(action) / 1e9
        yield Row(f"{name}, AES-256-GCM", f"{rate:.2f} GB/s", target=">= 1 GB/s")


def main() -> None:
    print_rows("Encryption, one core", encryption_rows())
    with tempfile.TemporaryDirectory(prefix="sparklog-bench-") as directory:
        try:
            server = S3Server(Path(directory) / "s3")
        except Unavailable as reason:
            print(f"no S3 server: {reason}")
            return
        server.start()
        try:
            print_rows("Object store", store_rows(server, Path(directory)))
            print_rows("Small objects", small_rows(server))
        finally:
            server.kill()
            shutil.rmtree(Path(directory) / "s3", ignore_errors=True)


if __name__ == "__main__":
    main()
