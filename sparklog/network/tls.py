"""`Tls`: a server's certificate, and the authorities of client certificates, as PEM files.

A renewed certificate is used within seconds for new connections. A file that is incomplete or
broken is logged, and the previous certificate stays in use. TLS 1.2 or newer. Source: SslFactory,
DefaultSslEngineFactory.PemFileBasedStore, DefaultKafkaPrincipalBuilder.
"""

import logging
import os
import re
import ssl
import stat
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.fs.files import translate_os_errors

_LOGGER: Final = logging.getLogger("sparklog.network")
_PEM: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----")
_SIZE_MAX: Final = 4 << 20


class ClientAuth(StrEnum):
    """Whether clients must show a certificate; values of ssl.client.auth."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


_VERIFY: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsNames:
    """The names of a server's TLS options, for messages."""

    certificate: str = "ssl.keystore.location"
    key: str = "ssl.key.location"
    password: str = "ssl.key.password"  # noqa: S105


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The files of a server's TLS. `key`: "" if it is in the certificate's file.

    `truststore`: the authorities of accepted client certificates; "" if none are requested.
    """

    certificate: str
    key: str = ""
    key_password: str = field(default="", repr=False)
    truststore: str = ""
    client_auth: ClientAuth = ClientAuth.NONE
    names: TlsNames = field(default_factory=TlsNames)

    def __post_init__(self) -> None:
        if self.client_auth is not ClientAuth.NONE and not self.truststore:
            raise InvalidRequestError(
                f"ssl.client.auth={self.client_auth}: set ssl.truststore.location=FILE, the "
                "authorities (PEM) that sign the clients' certificates"
            )
        if self.truststore and self.client_auth is ClientAuth.NONE:
            raise InvalidRequestError(
                "ssl.truststore.location has no effect without ssl.client.auth=required"
            )

    @property
    def paths(self) -> tuple[str, ...]:
        """All files, without duplicates."""
        return tuple(dict.fromkeys(filter(None, (self.certificate, self.key, self.truststore))))


def make_context(files: TlsFiles) -> ssl.SSLContext:
    """Return a server's SSL context.

    Raises:
        InvalidRequestError: A file has a fault; the message has both.
        StorageUnavailableError: A file can't be read.
    """
    _check(files.certificate, files.names.certificate, b"CERTIFICATE", "certificate")
    key = files.key or files.certificate
    name = files.names.key if files.key else files.names.certificate
    _check(key, name, b"PRIVATE KEY", "private key", is_secret=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Renegotiation lets a client make the server compute; compression leaks secrets by the size of
    # messages (CRIME). Kafka uses neither.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    try:
        # Without a password OpenSSL would ask at the terminal.
        context.load_cert_chain(files.certificate, key, lambda: files.key_password)
    except ssl.SSLError as error:
        raise _wrong_pair(files, key, error) from None
    except ValueError:
        raise InvalidRequestError(f"{files.names.password} is longer than 1024 bytes") from None
    context.verify_mode = _VERIFY[files.client_auth]
    if files.truststore:
        _check(files.truststore, "ssl.truststore.location", b"CERTIFICATE", "certificate")
        try:
            context.load_verify_locations(files.truststore)
        except ssl.SSLError as error:
            raise InvalidRequestError(
                f"ssl.truststore.location={files.truststore}: the file has a broken certificate: "
                f"{_reason(error)}", path=files.truststore,
            ) from None  # fmt: skip
    return context


def _check(path: str, name: str, part: bytes, what: str, *, is_secret: bool = False) -> None:
    """Raise InvalidRequestError for a file without the needed part; OpenSSL's errors are vague."""
    try:
        with translate_os_errors("read", path), open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(_SIZE_MAX)
    except FileNotFoundError:
        raise InvalidRequestError(f"{name}={path}: the file does not exist", path=path) from None
    parts = [kind for kind in _PEM.findall(data) if kind.endswith(part)]
    if not parts:
        other = b", ".join(dict.fromkeys(_PEM.findall(data))).decode()
        holds = f"the file only has {other}" if other else "the file is not a PEM file"
        hint = "" if other else "; openssl pkcs12 -in FILE -out FILE.pem converts .p12 files"
        raise InvalidRequestError(
            f"{name}={path}: the file contains no {what}: {holds}{hint}", path=path
        )
    if is_secret and mode & stat.S_IROTH:
        _LOGGER.warning("%s: all users of this host can read this key; run: chmod 600 %s",
                        path, path)  # fmt: skip


def _wrong_pair(files: TlsFiles, key: str, error: ssl.SSLError) -> InvalidRequestError:
    reason = _reason(error)
    if "mismatch" in reason.lower():
        reason_text = (
            f"the key in {key} doesn't belong to the first certificate in {files.certificate}"
        )
        return InvalidRequestError(reason_text, path=key)
    with translate_os_errors("read", key), open(key, "rb") as file:
        data = file.read(_SIZE_MAX)
    if b"ENCRYPTED" in data:
        password = files.names.password
        reason_text = (
            f"{password} is not the right password"
        ) if files.key_password else f"set {password}"
        return InvalidRequestError(f"{key}: the key is encrypted: {reason_text}", path=key)
    return InvalidRequestError(
        f"{files.certificate} and its key in {key} can't be used: {reason}", path=key
    )


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()


class Tls:
    """A server's SSL context, from certificate files. Threads may use `context`."""

    def __init__(self, files: TlsFiles) -> None:
        """Read the files. The errors are those of `make_context`."""
        self.files = files
        self._stamps = self._stat()
        self.context = make_context(files)

    def refresh(self) -> None:
        """Reload changed files. An error is logged once per change. Cost: a stat per file."""
        stamps = self._stat()
        if stamps == self._stamps:
            return
        # Before the files are loaded: a broken file is reported once, not at each connection.
        self._stamps = stamps
        try:
            self.context = make_context(self.files)
        except (InvalidRequestError, StorageUnavailableError) as error:
            _LOGGER.error("%s; the previous certificate stays in use", error)  # noqa: TRY400
        else:
            _LOGGER.info("%s: the certificate was loaded again", self.files.certificate)

    def _stat(self) -> tuple[tuple[int, ...] | None, ...]:
        return tuple(map(file_stamp, self.files.paths))


def file_stamp(path: str) -> tuple[int, ...] | None:
    """Return numbers that change when a file is replaced or rewritten; None without the file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


_KEYWORDS: Final = {
    "commonName": "CN", "countryName": "C", "localityName": "L", "stateOrProvinceName": "ST",
    "streetAddress": "STREET", "organizationName": "O", "organizationalUnitName": "OU",
    "domainComponent": "DC", "userId": "UID",
}  # fmt: skip


def subject_name(certificate: Any) -> str:
    """Return the subject of a certificate from `SSLObject.getpeercert`, in RFC 2253 format.

    Kafka uses it as the user's name: `CN=alice,OU=x,O=y`. "" without a certificate.
    """
    parts = []
    for names in reversed((certificate or {}).get("subject", ())):
        pairs = (f"{_KEYWORDS.get(key, key)}={_escaped(value)}" for key, value in names)
        parts.append("+".join(pairs))
    return ",".join(parts)


def _escaped(value: str) -> str:
    found = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if found.startswith(("#", " ")):
        found = "\\" + found
    return found[:-1] + "\\ " if found.endswith(" ") and len(found) > 1 else found
