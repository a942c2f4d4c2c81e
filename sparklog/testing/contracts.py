"""Contract tests of `FileSystem` and `Store`. Each implementation has a subclass.

    class TestMine(FileSystemContract):
        @pytest.fixture
        def fs(self) -> FileSystem: ...
        @pytest.fixture
        def root(self) -> str: ...      # an empty directory of this file system

    class TestMine(StoreContract):
        part_bytes = 1000
        @pytest.fixture
        def store(self) -> ObjectStore: ...     # empty, with parts of this size
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest

from sparklog.clock import system_clock
from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.fs import FileSystem, read_bytes, write_durably
from sparklog.testing.faultstore import FaultStore
from sparklog.tiered.object_store.object_store import ObjectStore


class FileSystemContract:
    """Contract tests of a file system: the engine's requirements.

    A subclass provides the fixtures `fs`, the file system, and `root`, an empty directory.

    Examples:
        >>> import pytest
        >>> from sparklog.testing import LOCAL, FileSystemContract
        >>> class TestLocal(FileSystemContract):
        ...     @pytest.fixture
        ...     def fs(self):
        ...         return LOCAL
        ...     @pytest.fixture
        ...     def root(self, tmp_path):
        ...         return str(tmp_path)
    """

    def test_pwrite_grows_and_pread_stops_at_the_end(self, fs: FileSystem, root: str) -> None:
        with fs.open(f"{root}/a", create=True) as file:
            file.pwrite(b"hello", 3)
            assert file.size() == 8
            assert file.pread(100, 0) == b"\0\0\0hello"
            assert file.pread(2, 4) == b"el"
            assert file.pread(5, 8) == b""
            file.pwrite(memoryview(b"HE"), 3)
            assert file.pread(5, 3) == b"HEllo"

    def test_truncate_cuts_and_extends_with_zeros(self, fs: FileSystem, root: str) -> None:
        with fs.open(f"{root}/a", create=True) as file:
            file.pwrite(b"abcdef", 0)
            file.truncate(2)
            file.truncate(4)
            assert file.pread(9, 0) == b"ab\0\0"
            file.sync()

    def test_open_never_cuts_and_needs_create(self, fs: FileSystem, root: str) -> None:
        with pytest.raises(FileNotFoundError):
            fs.open(f"{root}/a")
        with pytest.raises(FileNotFoundError):
            fs.open(f"{root}/a", write=True)
        with fs.open(f"{root}/a", create=True) as file:
            file.pwrite(b"kept", 0)
        with fs.open(f"{root}/a", create=True) as file:
            assert file.size() == 4
        assert fs.size(f"{root}/a") == 4

    def test_a_file_opened_to_read_refuses_writes(self, fs: FileSystem, root: str) -> None:
        fs.open(f"{root}/a", create=True).close()
        with fs.open(f"{root}/a") as file, pytest.raises(StorageUnavailableError):
            file.pwrite(b"x", 0)

    def test_closed_files_are_errors(self, fs: FileSystem, root: str) -> None:
        file = fs.open(f"{root}/a", create=True)
        file.close()
        file.close()
        with pytest.raises(ValueError, match="closed"):
            file.pread(1, 0)

    def test_names(self, fs: FileSystem, root: str) -> None:
        fs.mkdir(f"{root}/d")
        assert fs.is_dir(f"{root}/d")
        assert fs.listdir(root) == ["d"]
        with pytest.raises(FileExistsError):
            fs.mkdir(f"{root}/d")
        fs.open(f"{root}/d/x", create=True).close()
        assert fs.exists(f"{root}/d/x")
        assert not fs.is_dir(f"{root}/d/x")
        with pytest.raises(StorageUnavailableError, match="not empty"):
            fs.rmdir(f"{root}/d")
        fs.rename(f"{root}/d/x", f"{root}/y")
        fs.rmdir(f"{root}/d")
        assert fs.listdir(root) == ["y"]
        fs.unlink(f"{root}/y")
        assert fs.listdir(root) == []
        fs.sync_dir(root)

    def test_a_file_is_the_one_that_was_opened(self, fs: FileSystem, root: str) -> None:
        """An open file stays the same file when another file gets its name.

        Reads return its own content or fail; they never return the content of the other file.
        """
        for name, data in (("a", b"old"), ("b", b"new")):
            with fs.open(f"{root}/{name}", create=True) as file:
                file.pwrite(data, 0)
        with fs.open(f"{root}/a") as file:
            assert file.pread(3, 0) == b"old"
            fs.rename(f"{root}/b", f"{root}/a")
            try:
                assert file.pread(3, 0) == b"old"
            except FileNotFoundError:
                assert read_bytes(fs, f"{root}/a") == b"new"

    def test_times_can_be_set(self, fs: FileSystem, root: str) -> None:
        fs.open(f"{root}/a", create=True).close()
        fs.set_mtime_ms(f"{root}/a", 1_600_000_000_123)
        fs.rename(f"{root}/a", f"{root}/b")
        assert fs.mtime_ms(f"{root}/b") == 1_600_000_000_123
        with pytest.raises(FileNotFoundError):
            fs.set_mtime_ms(f"{root}/a", 0)

    @pytest.mark.parametrize("call", ["unlink", "rmdir", "size", "listdir", "identity", "map"])
    def test_missing_paths(self, fs: FileSystem, root: str, call: str) -> None:
        with pytest.raises(FileNotFoundError):
            getattr(fs, call)(f"{root}/nothing")
        assert not fs.exists(f"{root}/nothing")
        assert not fs.is_dir(f"{root}/nothing")

    def test_wrong_kinds(self, fs: FileSystem, root: str) -> None:
        fs.mkdir(f"{root}/d")
        fs.open(f"{root}/f", create=True).close()
        with pytest.raises(StorageUnavailableError):
            fs.unlink(f"{root}/d")
        with pytest.raises(StorageUnavailableError):
            fs.rmdir(f"{root}/f")
        with pytest.raises(StorageUnavailableError):
            fs.listdir(f"{root}/f")
        with pytest.raises(StorageUnavailableError):
            fs.open(f"{root}/d", write=True)
        with pytest.raises(StorageUnavailableError):
            fs.rename(f"{root}/f", f"{root}/d")

    def test_rename_replaces_and_keeps_the_inode(self, fs: FileSystem, root: str) -> None:
        for name in "ab":
            with fs.open(f"{root}/{name}", create=True) as file:
                file.pwrite(name.encode(), 0)
        identity = fs.identity(f"{root}/a")
        fs.rename(f"{root}/a", f"{root}/b")
        assert fs.listdir(root) == ["b"]
        assert fs.identity(f"{root}/b") == identity
        assert read_bytes(fs, f"{root}/b") == b"a"
        with pytest.raises(FileNotFoundError):
            fs.rename(f"{root}/a", f"{root}/c")

    def test_a_directory_moves_with_its_files(self, fs: FileSystem, root: str) -> None:
        fs.mkdir(f"{root}/d")
        fs.open(f"{root}/d/x", create=True).close()
        fs.rename(f"{root}/d", f"{root}/e")
        assert fs.listdir(f"{root}/e") == ["x"]

    def test_two_names_change_places(self, fs: FileSystem, root: str) -> None:
        for name in "ab":
            fs.mkdir(f"{root}/{name}")
            fs.open(f"{root}/{name}/in-{name}", create=True).close()
        assert fs.exchange(f"{root}/a", f"{root}/b")
        assert fs.listdir(f"{root}/a") == ["in-b"]
        assert fs.listdir(f"{root}/b") == ["in-a"]
        with pytest.raises(FileNotFoundError):
            fs.exchange(f"{root}/a", f"{root}/c")

    def test_hard_links_share_their_bytes(self, fs: FileSystem, root: str) -> None:
        with fs.open(f"{root}/a", create=True) as file:
            fs.link(f"{root}/a", f"{root}/b")
            file.pwrite(b"both", 0)
        assert read_bytes(fs, f"{root}/b") == b"both"
        assert fs.identity(f"{root}/a") == fs.identity(f"{root}/b")
        with pytest.raises(FileExistsError):
            fs.link(f"{root}/a", f"{root}/b")
        fs.unlink(f"{root}/a")
        assert read_bytes(fs, f"{root}/b") == b"both"

    def test_write_durably_replaces_the_whole(self, fs: FileSystem, root: str) -> None:
        write_durably(fs, f"{root}/a", b"a longer first text")
        write_durably(fs, f"{root}/a", b"short")
        assert read_bytes(fs, f"{root}/a") == b"short"
        assert fs.listdir(root) == ["a"]

    def test_map(self, fs: FileSystem, root: str) -> None:
        write_durably(fs, f"{root}/a", b"mapped")
        write_durably(fs, f"{root}/empty", b"")
        mapping = fs.map(f"{root}/a")
        assert bytes(mapping.data[1:4]) == b"app"
        fs.unlink(f"{root}/a")
        assert bytes(mapping.data) == b"mapped"
        mapping.close()
        assert len(fs.map(f"{root}/empty").data) == 0

    def test_locks_conflict_between_objects_only(self, fs: FileSystem, root: str) -> None:
        one, two = fs.open_lock(f"{root}/lock"), fs.open_lock(f"{root}/lock")
        assert one.try_lock(0, 1, exclusive=True)
        assert one.try_lock(0, 1, exclusive=True)
        assert not two.try_lock(0, 1, exclusive=True)
        assert not two.try_lock(0, 1, exclusive=False)
        assert two.try_lock(1, 1, exclusive=True)
        one.unlock(0, 1)
        assert two.try_lock(0, 1, exclusive=False)
        assert one.try_lock(0, 1, exclusive=False)
        assert not one.try_lock(0, 0, exclusive=True)
        assert not two.try_lock(0, 1, exclusive=True)
        one.close()
        assert two.try_lock(0, 0, exclusive=True)
        two.close()

    def test_a_lock_is_seen_without_taking_one(self, fs: FileSystem, root: str) -> None:
        path = f"{root}/lock"
        assert not fs.is_locked(path, 0, 1)
        assert not fs.exists(path)
        one = fs.open_lock(path)
        for exclusive in (False, True):
            assert one.try_lock(2, 3, exclusive=exclusive)
            assert fs.is_locked(path, 4, 1)
            assert fs.is_locked(path, 0, 0)
            assert not fs.is_locked(path, 0, 2)
            assert not fs.is_locked(path, 5, 1)
        one.close()
        assert not fs.is_locked(path, 0, 0)

    def test_a_lock_outlives_another_descriptor(self, fs: FileSystem, root: str) -> None:
        one = fs.open_lock(f"{root}/lock")
        assert one.try_lock(0, 1, exclusive=True)
        read_bytes(fs, f"{root}/lock")  # a POSIX lock would be lost by this
        other = fs.open_lock(f"{root}/lock")
        assert not other.try_lock(0, 1, exclusive=True)
        other.close()
        one.close()

    def test_part_of_a_lock_is_released(self, fs: FileSystem, root: str) -> None:
        one, two = fs.open_lock(f"{root}/lock"), fs.open_lock(f"{root}/lock")
        assert one.try_lock(0, 10, exclusive=True)
        one.unlock(4, 2)
        assert two.try_lock(4, 2, exclusive=True)
        assert not two.try_lock(3, 1, exclusive=True)
        assert not two.try_lock(9, 1, exclusive=True)
        assert two.try_lock(10, 5, exclusive=True)
        one.close()
        two.close()

    def test_is_current(self, fs: FileSystem, root: str) -> None:
        file = fs.open_lock(f"{root}/lock")
        assert file.is_current()
        assert file.identity() == fs.identity(f"{root}/lock")
        fs.unlink(f"{root}/lock")
        assert not file.is_current()
        fs.open_lock(f"{root}/lock").close()
        assert not file.is_current()
        file.close()

    def test_what_a_machine_tells(self, fs: FileSystem, root: str) -> None:
        write_durably(fs, f"{root}/a", b"x")
        assert fs.free_bytes(root) > 0
        assert fs.boot_id() == fs.boot_id() != ""
        assert fs.mtime_ms(f"{root}/a") > 1_600_000_000_000
        fs.set_mtime_ms(f"{root}/a", 0)
        assert fs.changed_ms(f"{root}/a") > 1_600_000_000_000
        assert fs.kind(root) != ""


class StoreContract:
    """Contract tests of an object store: the requirements of tiering.

    A subclass provides the fixture `store`, an empty store.

    Examples:
        >>> import pytest
        >>> from sparklog.testing import StoreContract
        >>> from sparklog.tiered import open_store
        >>> class TestDirectory(StoreContract):
        ...     @pytest.fixture
        ...     def store(self, tmp_path):
        ...         return open_store(f"file://{tmp_path}", part_bytes=self.part_bytes)
    """

    part_bytes: ClassVar[int] = 1000
    create_rounds: ClassVar[int] = 50  # races of eight creators

    def content(self, size: int) -> bytes:
        """Return bytes in which no two positions look alike.

        Args:
            size: The number of bytes.
        """
        words = b"".join(number.to_bytes(4, "big") for number in range(-(-min(size, 1 << 20) // 4)))
        return (words * (size // (1 << 20) + 1))[:size]

    def test_put_and_get(self, store: ObjectStore) -> None:
        store.put("t-0-x/a", b"first")
        store.put("t-0-x/a", b"second")
        assert store.get("t-0-x/a") == b"second"
        assert store.get("t-0-x/a", 2) == b"cond"
        assert store.get("t-0-x/a", 0, 3) == b"sec"
        assert store.get("t-0-x/a", 2, 4) == b"co"
        assert store.get("t-0-x/a", 4, 4) == b""

    def test_create(self, store: ObjectStore) -> None:
        with pytest.raises(FileNotFoundError):
            store.get("d/e/1")
        assert store.create("d/e/1", b"first")
        assert store.get("d/e/1") == b"first"  # also right after it wasn't there
        assert not store.create("d/e/1", b"other")
        assert not store.create("d/e/1", b"first")
        assert store.get("d/e/1") == b"first"
        store.put("d/e/1", b"put over it")
        assert not store.create("d/e/1", b"first")
        assert store.get("d/e/1") == b"put over it"
        store.delete(["d/e/1"])
        assert store.create("d/e/1", b"")
        assert not store.create("d/e/1", b"not empty")
        assert store.get("d/e/1") == b""
        assert [one.name for one in store.list()] == ["d/e/1"]
        assert store.sweep_uploads(system_clock() + 60_000) == 0

    def test_create_of_some_mib(self, store: ObjectStore) -> None:
        content = self.content(8 << 20)
        assert store.create("a", content)
        assert not store.create("a", content[:-1])
        assert store.get("a") == content

    def test_create_is_one_request(self, store: ObjectStore) -> None:
        before = store.counts.as_dict()
        assert store.create("a", b"12345")
        assert not store.create("a", b"12345")
        after = store.counts.as_dict()
        assert after["puts"] - before["puts"] == 2
        assert after["bytes_out"] - before["bytes_out"] == 10
        assert (after["gets"], after["lists"], after["retries"]) == (
            before["gets"], before["lists"], before["retries"],
        )  # fmt: skip

    def test_one_of_many_creators_wins(self, store: ObjectStore) -> None:
        """Exactly one of eight concurrent creators wins, and the losers read its bytes."""
        start = threading.Barrier(8)

        def create(who: int) -> list[int]:
            won = []
            for turn in range(self.create_rounds):
                start.wait(60)
                if store.create(f"c/{turn}", self.content(3000 + who)):
                    won.append(turn)
                    continue
                size = len(store.get(f"c/{turn}"))  # exists, as the store reported
                assert 3000 <= size < 3008
            return won

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(create, range(8)))
        assert sorted(turn for turns in won for turn in turns) == list(range(self.create_rounds))
        for who, turns in enumerate(won):
            for turn in turns:
                assert store.get(f"c/{turn}") == self.content(3000 + who)
        assert len(store.list()) == self.create_rounds

    def test_copy(self, store: ObjectStore) -> None:
        for parts, rest in ((0, 0), (0, 5), (2, 7)):
            content = self.content(parts * self.part_bytes + rest)
            store.put_stream("a/source", [content], len(content))
            store.copy(store, "a/source", "b/copy")  # replaces the object before
            assert store.get("b/copy") == content
        store.put("a/source", b"changed")
        assert store.get("b/copy") == content
        store.delete(["a/source"])
        assert store.get("b/copy") == content
        with pytest.raises(FileNotFoundError, match="a/source"):
            store.copy(store, "a/source", "b/copy")
        assert store.get("b/copy") == content
        assert [one.name for one in store.list()] == ["b/copy"]

    def test_copy_from_elsewhere(self, store: ObjectStore) -> None:
        other = FaultStore(part_bytes=self.part_bytes)
        content = self.content(2 * self.part_bytes + 7)
        other.put_stream("source", [content], len(content))
        store.copy(other, "source", "copy")
        assert store.get("copy") == content
        with pytest.raises(FileNotFoundError, match="nothing"):
            store.copy(other, "nothing", "copy")
        assert store.size("copy") == len(content)
        with pytest.raises(FileNotFoundError, match="nothing"):
            store.size("nothing")

    def test_reads_stop_at_the_end(self, store: ObjectStore) -> None:
        store.put("a", b"0123456789")
        assert store.get("a", 8, 100) == b"89"
        assert store.get("a", 10, 12) == b""
        assert store.get("a", 11, 12) == b""
        assert store.get("a", 10) == b""
        store.put("empty", b"")
        assert store.get("empty") == b""
        assert store.get("empty", 0, 5) == b""

    def test_missing_objects(self, store: ObjectStore) -> None:
        for arguments in ((), (0, 5), (3,)):
            with pytest.raises(FileNotFoundError, match="no such object"):
                store.get("t-0-x/nothing", *arguments)
        store.put("a", b"1")
        found = store.get_many(["a", "nothing", "a"])
        assert [found[0], found[2]] == [b"1", b"1"]
        assert isinstance(found[1], FileNotFoundError)
        assert store.get_many([]) == []

    def test_streams_in_parts(self, store: ObjectStore) -> None:
        for parts, rest in ((0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 7)):
            content = self.content(parts * self.part_bytes + rest)
            step = self.part_bytes // 3 + 1
            pieces = [content[at : at + step] for at in range(0, len(content), step)]
            store.put_stream("d/stream", pieces, len(content))
            assert store.get("d/stream") == content
            edge = self.part_bytes
            assert store.get("d/stream", edge - 2, edge + 2) == content[edge - 2 : edge + 2]
        store.put_stream("d/iterator", iter(pieces), len(content))
        assert store.get("d/iterator") == content

    def test_a_piece_may_be_larger_than_a_part(self, store: ObjectStore) -> None:
        content = self.content(3 * self.part_bytes + 5)
        store.put_stream("a", [b"", content[:1], content[1:], b""], len(content))
        assert store.get("a") == content

    @pytest.mark.parametrize("parts", [0, 2])
    @pytest.mark.parametrize("difference", [-1, 1])
    def test_a_stream_of_another_size_shows_nothing(
        self, store: ObjectStore, parts: int, difference: int
    ) -> None:
        size = parts * self.part_bytes + 500
        store.put("d/a", b"kept")
        with pytest.raises(InvalidRequestError, match=f"but {size - difference} were announced"):
            store.put_stream("d/a", [self.content(size)], size - difference)
        assert [(one.name, one.size) for one in store.list()] == [("d/a", 4)]
        assert store.get("d/a") == b"kept"
        assert store.sweep_uploads(system_clock() + 60_000) == 0

    @pytest.mark.parametrize("kind", [ValueError, FileNotFoundError, KeyboardInterrupt])
    def test_a_stream_that_breaks_off_shows_nothing(
        self, store: ObjectStore, kind: type[BaseException]
    ) -> None:
        size = 3 * self.part_bytes

        def pieces() -> Iterator[bytes]:
            yield self.content(2 * self.part_bytes + 1)
            raise kind("the source")

        with pytest.raises(kind, match="the source"):
            store.put_stream("d/a", pieces(), size)
        assert store.list() == []
        assert store.sweep_uploads(system_clock() + 60_000) == 0

    def test_lists(self, store: ObjectStore) -> None:
        assert store.list() == []
        assert store.list("no/such") == []
        names = ["a-0-x/1.log", "a-0-x/1.manifest", "a-0-x/2.log", "a-0-xy/1.log", "b/c/d/e", "top"]
        for name in reversed(names):
            store.put(name, name.encode())
        assert [one.name for one in store.list()] == sorted(names)
        assert [one.size for one in store.list()] == [len(name) for name in sorted(names)]
        assert [one.name for one in store.list("a-0-x/")] == names[:3]
        assert [one.name for one in store.list("a-0-x")] == names[:4]
        assert [one.name for one in store.list("a-0-x/1")] == names[:2]
        assert [one.name for one in store.list("b/")] == ["b/c/d/e"]
        assert [one.name for one in store.list("top")] == ["top"]
        assert store.list("a-0-x/1.log/") == []
        assert [one.name for one in store.list("a-0-x/", start_after="a-0-x/1.log")] == names[1:3]
        assert [one.name for one in store.list(without="a-0-x/")] == names[3:]
        assert [one.name for one in store.list("a-0-x/", "a-0-x/1.lz")] == names[1:3]
        assert [one.name for one in store.list("", "a-0-x/2.log")] == names[3:]
        assert store.list("b/", "c") == []

    def test_lists_are_fresh(self, store: ObjectStore) -> None:
        for turn in range(3):
            store.put(f"d/{turn}", b"")
            assert len(store.list("d/")) == 1
            store.delete([f"d/{turn}"])
            assert store.list("d/") == []

    def test_times_are_those_of_the_last_change(self, store: ObjectStore) -> None:
        store.put("a", b"")
        (listed,) = store.list()
        clock = getattr(store, "clock", system_clock)
        assert abs(clock() - listed.time_ms) < 60_000

    def test_delete(self, store: ObjectStore) -> None:
        for name in ("d/a", "d/b", "c"):
            store.put(name, b"x")
        store.delete([])
        store.delete(["d/a", "nothing", "d/nothing", "c"])
        assert [one.name for one in store.list()] == ["d/b"]
        store.delete(["d/a", "d/b"])
        assert store.list() == []

    def test_threads_share_it(self, store: ObjectStore) -> None:
        def work(number: int) -> bool:
            content = self.content(self.part_bytes // 10 + number)
            store.put(f"t/{number}", content)
            return (
                store.get(f"t/{number}") == content and store.get(f"t/{number}", 3) == content[3:]
            )

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(work, range(24)))
        assert len(store.list("t/")) == 24

    def test_counts(self, store: ObjectStore) -> None:
        store.put("a", b"12345")
        store.get("a")
        store.get("a", 1, 3)
        store.list()
        store.delete(["a"])
        counts = store.counts.as_dict()
        assert (counts["puts"], counts["lists"], counts["deletes"]) == (1, 1, 1)
        assert (counts["bytes_out"], counts["bytes_in"], counts["retries"]) == (5, 7, 0)
        assert 2 <= counts["gets"] <= 3  # a put may be verified by another request
