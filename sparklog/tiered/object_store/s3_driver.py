"""S3 driver over s3fs: multipart uploads and checksums.

A PUT contains its CRC-32C, which S3 compares before it stores anything. Stores without this feature
answer with the MD5 as ETag, which is compared here.
"""

import asyncio
import contextlib
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sparklog.tiered.object_store.driver import Driver, Upload, expect_size, time_ms, too_old
from sparklog.tiered.object_store.failures import RedirectedError
from sparklog.tiered.object_store.fsspec_driver import Connection, encoded
from sparklog.tiered.object_store.store import StoredObject

PART_BYTES_MIN: Final = 5 << 20  # S3's bound for all parts but the last
COPY_BYTES_MAX: Final = 1 << 30  # S3's bound is 5 GiB, but a request may last for two minutes
_NO_RETRIES: Final = {"total_max_attempts": 1}
_CREATES_FROM: Final = (1, 35, 21)  # of botocore
_CLOSING_S: Final = 0.1  # as in s3fs; after that the loop continues to close it
_MD5: Final = re.compile("[0-9a-f]{32}")


def options(given: Mapping[str, Any], connections: int) -> dict[str, Any]:
    """Return `storage_options` for s3fs such that each request is a single attempt.

    Options of the caller take precedence.

    Raises:
        ImportError: s3fs is missing.
    """
    from sparklog.tiered.object_store.s3_session import SingleSendSession, is_supported

    config = {
        **({"http_session_cls": SingleSendSession} if is_supported() else {}),
        "retries": _NO_RETRIES,
        "max_pool_connections": connections,
        "connect_timeout": 10,
        "read_timeout": 60,  # S3 may need long to complete a large upload
        **given.get("config_kwargs", {}),
    }
    return {"max_concurrency": 1, **given, "config_kwargs": config}


def close_session(loop: asyncio.AbstractEventLoop | None, client: Any) -> None:
    """Close a client of s3fs on the client's event loop.

    s3fs's own function uses the loop that runs in the current thread. If the interpreter or the
    garbage collector calls it inside another loop (a notebook's, or the loop of `asyncio.run`), the
    client is not closed, and the error is printed as a traceback.
    """
    if loop is None or not loop.is_running():
        from s3fs import S3FileSystem  # type: ignore[import-untyped]

        S3FileSystem.close_session(None, client)  # closes only the sockets
        return
    closing = asyncio.run_coroutine_threadsafe(client.__aexit__(None, None, None), loop)
    with contextlib.suppress(Exception):  # the client isn't used any more
        if not _runs_here(loop):
            closing.result(_CLOSING_S)


def _runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Return True if the current thread runs this loop, so waiting for it would block."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


class S3Driver:
    """The driver of S3. Objects larger than `copy_bytes_max` are copied in parts."""

    many, looks, delete_max, replaces = True, False, 1000, True
    copy_bytes_max = COPY_BYTES_MAX

    def __init__(self, url: str, connection: Connection, timeout_ms: int = 120_000) -> None:
        self.url, self._connection = url, connection
        # Timeout of a complete request: the library's own timeout starts when the request has been
        # sent, so a network that drops packets would block a PUT for many minutes.
        self._timeout_s = max(1, timeout_ms // 1000)
        self._root = connection.root.rstrip("/")
        self._bucket, _, key = self._root.partition("/")
        self._prefix = f"{key}/" if key else ""
        self.skips = not self._bucket.endswith("--x-s3")  # directory buckets list unsorted

    @property
    def _fs(self) -> Any:
        fs = self._connection.fs
        fs.retries = 1  # its retries would multiply ours
        fs.close_session = close_session  # s3fs registers it when it connects
        return fs

    @property
    def sends_once(self) -> bool:
        """True if neither botocore nor aiohttp repeats a request."""
        from sparklog.tiered.object_store.s3_session import SingleSendSession

        config = self._connection.fs.config_kwargs
        return (
            config.get("http_session_cls") is SingleSendSession
            and config.get("retries") == _NO_RETRIES
        )

    def _call(self, method: str, **arguments: Any) -> dict[str, Any]:
        with _only_answers():
            answer: dict[str, Any] = self._fs.call_s3(
                method, Bucket=self._bucket, timeout=self._timeout_s, **arguments
            )
        return answer

    def put(self, name: str, data: bytes, crc: int) -> None:
        answer = self._call(
            "put_object", Key=self._prefix + name, Body=data, ChecksumCRC32C=encoded(crc)
        )
        _expect_same(name, answer, data, crc)

    def create(self, name: str, data: bytes, crc: int) -> bool:
        if _botocore() < _CREATES_FROM:  # s3fs would omit the unknown condition
            raise too_old(self.url, "botocore", "aiobotocore>=2.16")
        answer = self._call(
            "put_object",
            Key=self._prefix + name,
            Body=data,
            ChecksumCRC32C=encoded(crc),
            IfNoneMatch="*",
        )
        _expect_same(name, answer, data, crc)
        return True

    def copies(self, source: Driver) -> bool:
        return isinstance(source, S3Driver) and source._connection.given == self._connection.given

    def copy(self, source: "S3Driver", source_name: str, name: str, size: int) -> int:
        # The store copies the bytes itself. For objects above its bound it copies ranges as parts
        # of an upload.
        where = {"Bucket": source._bucket, "Key": source._prefix + source_name}
        if size <= self.copy_bytes_max:
            self._call("copy_object", Key=self._prefix + name, CopySource=where)
            return 1
        upload = self.begin(name, size)
        try:
            receipts = [
                upload.copied(number, where, at, min(at + self.copy_bytes_max, size))
                for number, at in enumerate(range(0, size, self.copy_bytes_max), 1)
            ]
            upload.finish(receipts)
        except BaseException:
            with contextlib.suppress(Exception):  # report the first error
                upload.abort()
            raise
        return len(receipts) + 2

    def read(self, name: str, start: int, end: int) -> bytes:
        path = f"{self._root}/{name}"
        with _only_answers():  # an empty object gives HTTP 416, which `ObjectStore.get` handles
            data = bytes(self._fs.cat_file(path, start=start, end=end, timeout=self._timeout_s))
        # A proxy or a store that ignores the Range header returns the complete object.
        if len(data) > end - start:
            raise ConnectionError(f"{len(data)} of {end - start} bytes of {name} arrived")
        return data

    def size(self, name: str) -> int:
        return int(self._call("head_object", Key=self._prefix + name)["ContentLength"])

    def check(self, name: str, size: int, crc: int) -> None:
        expect_size(name, self.size(name), size)  # checksums were compared during the upload

    def page(
        self, prefix: str, token: str | None, start_after: str = ""
    ) -> tuple[list[StoredObject], str | None]:
        more = {} if token is None else {"ContinuationToken": token}
        if start_after:
            more["StartAfter"] = self._prefix + start_after
        answer = self._call("list_objects_v2", Prefix=self._prefix + prefix, **more)
        listed = [
            StoredObject(
                entry["Key"][len(self._prefix) :], entry["Size"], time_ms(entry["LastModified"])
            )
            for entry in answer.get("Contents", ())
            if not entry["Key"].endswith("/")  # a console's "folder"
        ]
        return listed, answer["NextContinuationToken"] if answer.get("IsTruncated") else None

    def older_versions(self, prefix: str, before_ms: int) -> int:
        # "Suspended" retains earlier versions, "Enabled" all. Without versioning it is absent.
        if not self._call("get_bucket_versioning").get("Status"):
            return 0
        count, more = 0, dict[str, str]()
        while True:
            answer = self._call("list_object_versions", Prefix=self._prefix + prefix, **more)
            count += sum(
                not each["IsLatest"] and time_ms(each["LastModified"]) < before_ms
                for each in answer.get("Versions", ())
            )
            if not answer.get("IsTruncated"):
                return count
            more = {"KeyMarker": answer["NextKeyMarker"]}
            if "NextVersionIdMarker" in answer:
                more["VersionIdMarker"] = answer["NextVersionIdMarker"]

    def delete(self, names: Sequence[str]) -> None:
        keys = [{"Key": self._prefix + name} for name in names]
        answer = self._call("delete_objects", Delete={"Objects": keys, "Quiet": True})
        for failed in answer.get("Errors", ()):
            code, message = failed.get("Code", ""), failed.get("Message", "")
            if code == "NoSuchKey":
                continue
            if code == "AccessDenied":
                raise PermissionError(f"{failed.get('Key')}: {message}")
            raise ConnectionError(f"{failed.get('Key')} was not deleted: {code} {message}")

    def begin(self, name: str, size: int) -> "_S3Upload":
        key = self._prefix + name
        answer = self._call("create_multipart_upload", Key=key, ChecksumAlgorithm="CRC32C")
        return _S3Upload(self, key, answer["UploadId"])

    def uploads(self, before_ms: int, prefix: str = "") -> list[Upload]:
        start = self._prefix + prefix
        return [
            _S3Upload(self, entry["Key"], entry["UploadId"])
            for entry in self._upload_entries(start)
            if entry["Key"].startswith(start) and time_ms(entry["Initiated"]) < before_ms
        ]

    def _upload_entries(self, prefix: str) -> Iterator[dict[str, Any]]:
        more: dict[str, str] = {}
        while True:
            answer = self._call("list_multipart_uploads", Prefix=prefix, **more)
            yield from answer.get("Uploads", ())
            if not answer.get("IsTruncated"):
                return
            more = {
                "KeyMarker": answer["NextKeyMarker"],
                "UploadIdMarker": answer["NextUploadIdMarker"],
            }


class _S3Upload:
    def __init__(self, driver: S3Driver, key: str, upload_id: str) -> None:
        self._driver, self._key, self._id = driver, key, upload_id

    def _call(self, method: str, **arguments: Any) -> dict[str, Any]:
        return self._driver._call(method, Key=self._key, UploadId=self._id, **arguments)

    def part(self, number: int, at: int, data: bytes, crc: int) -> Any:
        answer = self._call(
            "upload_part", PartNumber=number, Body=data, ChecksumCRC32C=encoded(crc)
        )
        _expect_same(f"part {number} of {self._key}", answer, data, crc)
        receipt = {"PartNumber": number, "ETag": answer["ETag"]}
        if "ChecksumCRC32C" in answer:
            receipt["ChecksumCRC32C"] = answer["ChecksumCRC32C"]
        return receipt

    def copied(self, number: int, source: Mapping[str, str], start: int, end: int) -> Any:
        """Let the store copy bytes [start, end) of another object as part `number`."""
        answer = self._call(
            "upload_part_copy",
            PartNumber=number,
            CopySource=source,
            CopySourceRange=f"bytes={start}-{end - 1}",
        )["CopyPartResult"]
        receipt = {"PartNumber": number, "ETag": answer["ETag"]}
        if "ChecksumCRC32C" in answer:
            receipt["ChecksumCRC32C"] = answer["ChecksumCRC32C"]
        return receipt

    def finish(self, receipts: Sequence[Any]) -> None:
        expected = _whole_etag([receipt["ETag"] for receipt in receipts])
        try:
            answer = self._call(
                "complete_multipart_upload", MultipartUpload={"Parts": list(receipts)}
            )
        except FileNotFoundError:  # no such upload: the answer to an earlier call may be lost
            try:
                answer = self._driver._call("head_object", Key=self._key)
            except FileNotFoundError:
                answer = {}
            # The object may be of an earlier or another upload: only the ETag of these parts proves
            # that this upload was completed.
            if expected is None or _etag(answer) != expected:
                raise OSError("the store aborted the upload; copy again") from None
        etag = _etag(answer)
        if expected is not None and "-" in etag and etag != expected:
            raise ConnectionError(f"{self._key} arrived changed: ETag {etag}, not {expected}")

    def abort(self) -> None:
        try:
            self._call("abort_multipart_upload")
        except FileNotFoundError:
            return


@contextlib.contextmanager
def _only_answers() -> Iterator[None]:
    """Let FileNotFoundError pass only if S3 answered that an object is missing.

    The error may also be about a file of the client: a missing token file would otherwise be
    reported as a missing object.
    """
    try:
        yield
    except FileNotFoundError as error:
        if getattr(error.__cause__, "response", None) is None:
            raise PermissionError(f"a file that the S3 client needs is missing: {error}") from error
        raise
    except RecursionError:  # botocore requests the bucket's region, which is redirected as well
        raise RedirectedError("each request is redirected (HTTP 301)") from None


def _botocore() -> tuple[int, ...]:
    import botocore

    return tuple(int(number) for number in botocore.__version__.split(".")[:3] if number.isdigit())


def _etag(answer: Mapping[str, Any]) -> str:
    return str(answer.get("ETag", "")).strip('"')


def _whole_etag(parts: Sequence[str]) -> str | None:
    """Return S3's ETag of an upload (MD5 of the parts' MD5s, and number of parts), or None."""
    plain = [etag.strip('"') for etag in parts]
    if not all(_MD5.fullmatch(etag) for etag in plain):
        return None
    together = hashlib.md5(b"".join(map(bytes.fromhex, plain)), usedforsecurity=False)
    return f"{together.hexdigest()}-{len(plain)}"


def _expect_same(name: str, answer: Mapping[str, Any], data: bytes, crc: int) -> None:
    """Raise ConnectionError if the store's checksum differs from the checksum of `data`."""
    theirs = answer.get("ChecksumCRC32C")
    if theirs is not None:
        same = theirs == encoded(crc)
    elif "SSECustomerAlgorithm" in answer or "kms" in str(answer.get("ServerSideEncryption", "")):
        same = True  # then the ETag is no MD5; S3 has compared the CRC-32C of the request
    else:
        theirs = _etag(answer)
        same = (
            not _MD5.fullmatch(theirs)
            or theirs == hashlib.md5(data, usedforsecurity=False).hexdigest()
        )
    if not same:
        raise ConnectionError(f"{name} arrived changed: the store's checksum is {theirs}")
