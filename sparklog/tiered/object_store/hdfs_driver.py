"""`hdfs://` over pyarrow: written aside, then renamed, for a rename fails if the name is there."""

from typing import Any

from sparklog.tiered.object_store.driver import Driver, partial_name
from sparklog.tiered.object_store.fsspec_driver import FsspecDriver, StreamUpload


class HdfsDriver(FsspecDriver):
    """See `Driver`. A put over an object that is there isn't atomic: a get may find none.

    libhdfs has no rename that replaces. What was written is on the disks of its data nodes when
    they write it back, or at once if dfs.datanode.synconclose is true.
    """

    def create(self, name: str, data: bytes, crc: int) -> bool:
        upload, path = self.begin(name, len(data)), self._path(name)
        try:
            upload.part(1, 0, data, crc)
            self._fs.mv(upload.close(), path)
        except OSError:  # the same one, whatever it is that HDFS doesn't like
            upload.abort()
            if not self._fs.exists(path):
                raise
            return False
        except BaseException:
            upload.abort()
            raise
        return True

    def copies(self, source: Driver) -> bool:
        return False

    def begin(self, name: str, size: int) -> StreamUpload:
        path = self._path(name)
        self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        return StreamUpload(self._fs, path, partial_name(path), rename=_replace)


def _replace(fs: Any, old: str, new: str) -> None:
    try:
        fs.mv(old, new)
    except OSError:
        if not fs.exists(old):  # it was renamed, and the answer was lost
            return
        if not fs.exists(new):
            raise
        fs.rm_file(new)
        fs.mv(old, new)
