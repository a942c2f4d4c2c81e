"""The contract of `sparklog.fs.FileSystem` as a test class: each implementation subclasses it.

class TestMine(FileSystemContract):
    @pytest.fixture
    def fs(self) -> FileSystem: ...
    @pytest.fixture
    def root(self) -> str: ...      # an empty directory of that file system
"""

import pytest

from sparklog.errors import StorageUnavailableError
from sparklog.fs import FileSystem, read_bytes, write_durably


class FileSystemContract:
    """What the engine relies on, wherever its files are."""

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
        """Where another takes its name it is still read, or gone, never the other one."""
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
        assert fs.kind(root) != ""
