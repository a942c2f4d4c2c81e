"""`hdfs://` over pyarrow: files are written under another name, then renamed.

A rename fails if the name exists.
"""

from typing import Any

from sparklog.tiered.object_store.driver import Driver, partial_name
from sparklog.tiered.object_store.fsspec_driver import FsspecDriver, StreamUpload


class HdfsDriver(FsspecDriver):
    """See `Driver`. Replacing an object is not atomic: a GET may find none.

    libhdfs has no rename that replaces. Data are on the disks of the data nodes when these write
    them back, or at once if dfs.datanode.synconclose is true.
    """

    def create(self, name: str, data: bytes, crc: int) -> bool:
        upload, path = self.begin(name, len(data)), self._path(name)
        try:
            upload.part(1, 0, data, crc)
            self._fs.mv(upload.close(), path)
        except OSError:  # HDFS raises it for an existing name, and for all other faults
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
        if not fs.exists(old):  # already renamed, but the answer was lost
            return
        if not fs.exists(new):
            raise
        fs.rm_file(new)
        fs.mv(old, new)
