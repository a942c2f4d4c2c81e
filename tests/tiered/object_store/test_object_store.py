"""Retries, checks and parts over any driver: exhaustively by seeds, and what must not happen."""

import random

import pytest

from sparklog.errors import StorageUnavailableError
from sparklog.testing.faultstore import Faults, FaultStore

ROUGH = Faults(reset=0.1, busy=0.1, lost=0.1, short=0.1, stale=0.3, latency_ms=(0, 50))


@pytest.mark.parametrize("seed", range(60))
def test_a_store_that_fails_often_is_still_a_dict(seed):
    store, rng = (
        FaultStore(seed=seed, faults=ROUGH, attempts=15, part_bytes=100),
        random.Random(seed),
    )
    truth: dict[str, bytes] = {}
    for _ in range(25):
        name, operation = f"d/{rng.randrange(6)}", rng.randrange(5)
        if operation == 0:
            truth[name] = rng.randbytes(rng.randrange(50))
            store.put(name, truth[name])
        elif operation == 1:
            truth[name] = data = rng.randbytes(rng.randrange(1000))
            store.put_stream(
                name, [data[at : at + 37] for at in range(0, len(data), 37)], len(data)
            )
        elif operation == 2:
            store.delete([name])
            truth.pop(name, None)
        elif name in truth:
            start, end = sorted((rng.randrange(1000), rng.randrange(1000)))
            assert store.get(name, start, end) == truth[name][start:end]
            assert store.get_many([name, "none"])[0] == truth[name]
    assert {name: data for name, (data, _) in store.bucket.objects.items()} == truth
    store.clock.advance(ROUGH.stale_ms)
    assert [(one.name, one.size) for one in store.list("d/")] == [
        (name, len(truth[name])) for name in sorted(truth)
    ]
    assert store.counts.retries > 0


def test_a_seed_can_be_replayed():
    def run() -> tuple[list[str], dict[str, int], int]:
        store = FaultStore(seed=3, faults=ROUGH, attempts=15, part_bytes=10)
        for number in range(20):
            store.put_stream(f"{number}", [bytes(25)], 25)
            store.get(f"{number}", 3, 9)
        return store.effects, store.counts.as_dict(), store.clock()

    assert run() == run()


def test_an_iterator_is_sent_once_and_its_parts_are_retried():
    store = FaultStore(seed=1, faults=Faults(reset=0.3), attempts=20, part_bytes=10)
    store.put_stream("a", iter([b"x" * 100]), 100)
    assert store.get("a") == b"x" * 100


def test_memory_is_bounded_by_parts_on_the_way():
    """Pieces are asked for only as parts are sent."""
    store = FaultStore(part_bytes=100)
    asked: list[int] = []

    def pieces():
        for _ in range(20):
            asked.append(sum(effect.startswith("part") for effect in store.effects))
            yield b"x" * 50

    store.put_stream("a", pieces(), 1000)
    assert all(sent >= number // 2 - 2 for number, sent in enumerate(asked))


def test_a_deletion_of_many_is_a_request_a_thousand():
    store = FaultStore()
    for number in range(2500):
        store.bucket.objects[f"{number:04}"] = b"", 0
    assert len(store.list()) == 2500
    assert store.counts.lists == 3
    store.delete([f"{number:04}" for number in range(2500)])
    assert store.counts.deletes == 3
    assert store.bucket.names() == []


def test_one_of_many_that_fails_is_told_in_its_place():
    store = FaultStore()
    store.put("a", b"1")
    store.refuse()
    (found,) = store.get_many(["a"])
    assert isinstance(found, StorageUnavailableError)
    assert "can't read fault://bucket/a: the store refuses the credentials; check" in str(found)
