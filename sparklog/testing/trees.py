"""Read and copy directory trees, also between file systems."""

from collections.abc import Iterator

from sparklog.fs import FileSystem, read_bytes


def walk_files(fs: FileSystem, path: str) -> Iterator[str]:
    """Yield the paths of all files below a directory, sorted within each directory."""
    for name in fs.listdir(path):
        child = f"{path}/{name}"
        if fs.is_dir(child):
            yield from walk_files(fs, child)
        else:
            yield child


def contents(fs: FileSystem, path: str) -> dict[str, bytes]:
    """Return {path: bytes} of all files below a directory."""
    return {file: read_bytes(fs, file) for file in walk_files(fs, path)}


def copy_tree(src_fs: FileSystem, src: str, dst_fs: FileSystem, dst: str) -> None:
    """Copy a directory as `cp -r` does, with new inodes; `dst` must not exist."""
    dst_fs.mkdir(dst)
    for name in src_fs.listdir(src):
        if src_fs.is_dir(f"{src}/{name}"):
            copy_tree(src_fs, f"{src}/{name}", dst_fs, f"{dst}/{name}")
        else:
            with dst_fs.open(f"{dst}/{name}", create=True) as file:
                file.pwrite(read_bytes(src_fs, f"{src}/{name}"), 0)
