"""`ScramCredential`: the stored form of a password, and the check of a password against it.

    SaltedPassword = PBKDF2(password, salt, iterations)
    StoredKey      = H(HMAC(SaltedPassword, "Client Key"))   verifies that a client has the password
    ServerKey      = HMAC(SaltedPassword, "Server Key")      proves to a client that the server does

Neither key reveals the password or is sufficient to log in. A password is its UTF-8 bytes, without
SASLprep, as in Kafka's ScramFormatter.

Source: RFC 5802, section 3; RFC 7677; ScramFormatter.java, ScramCredentialUtils.java (Kafka 4.1).
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Self

from sparklog.errors import InvalidRequestError

ITERATIONS_MIN: Final = 4096  # ScramMechanism.minIterations
ITERATIONS_MAX: Final = 1_000_000  # half a second of CPU time per PLAIN login
ITERATIONS: Final = 16_384  # the maximum of Kafka's own tools; about 10 ms of the client's time
SALT_BYTES: Final = 32
SALT_BYTES_MIN: Final = 12


class Mechanism(StrEnum):
    """SASL mechanisms by name."""

    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    PLAIN = "PLAIN"

    @property
    def hash_name(self) -> str:
        """The hash function of a SCRAM mechanism, by hashlib's name."""
        return _HASHES[self]


_HASHES: Final = {Mechanism.SCRAM_SHA_256: "sha256", Mechanism.SCRAM_SHA_512: "sha512"}
SCRAM: Final = tuple(_HASHES)


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A user's keys for a mechanism. The repr contains no key.

    Raises:
        InvalidRequestError: The salt, a key or `iterations` is out of range.
    """

    mechanism: Mechanism
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    def __post_init__(self) -> None:
        check_iterations(self.iterations)
        if len(self.salt) < SALT_BYTES_MIN:
            raise InvalidRequestError(
                f"{self.mechanism}: the salt has {len(self.salt)} bytes, less than {SALT_BYTES_MIN}"
            )
        size = hashlib.new(self.mechanism.hash_name).digest_size
        for name, key in (("stored_key", self.stored_key), ("server_key", self.server_key)):
            if len(key) != size:
                raise InvalidRequestError(
                    f"{self.mechanism}: {name} has {len(key)} bytes instead of {size}"
                )

    @classmethod
    def from_password(
        cls,
        mechanism: Mechanism,
        password: str,
        *,
        iterations: int = ITERATIONS,
        salt: bytes | None = None,
    ) -> Self:
        """Derive the keys of a password, with a random salt by default.

        Cost: 10 ms at 16,384 iterations.

        Raises:
            InvalidRequestError: The password is empty, or `iterations` is out of range.
        """
        if not password or "\0" in password:
            raise InvalidRequestError("the password must not be empty or contain a NUL character")
        check_iterations(iterations)
        salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
        salted = _salted(mechanism, password, salt, iterations)
        return cls.from_salted_password(mechanism, salted, iterations=iterations, salt=salt)

    @classmethod
    def from_salted_password(
        cls, mechanism: Mechanism, salted: bytes, *, iterations: int, salt: bytes
    ) -> Self:
        """Derive the keys of a SaltedPassword, which AlterUserScramCredentials contains."""
        name = mechanism.hash_name
        stored = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
        return cls(mechanism, salt, stored, hmac.digest(salted, b"Server Key", name), iterations)

    def matches(self, password: str) -> bool:
        """Return True if a password has these keys.

        Takes as long as `from_password`, whatever the result.
        """
        salted = _salted(self.mechanism, password, self.salt, self.iterations)
        name = self.mechanism.hash_name
        stored = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
        return hmac.compare_digest(stored, self.stored_key)

    def to_dict(self) -> dict[str, object]:
        """Return the entry of the users' file: bytes in base64, with Kafka's names."""
        return {
            "salt": base64.b64encode(self.salt).decode(),
            "stored_key": base64.b64encode(self.stored_key).decode(),
            "server_key": base64.b64encode(self.server_key).decode(),
            "iterations": self.iterations,
        }

    @classmethod
    def from_dict(cls, mechanism: Mechanism, entry: object) -> Self:
        """Read an entry that `to_dict` returned.

        Raises:
            InvalidRequestError: The entry is invalid. The message contains no key.
        """
        names = ("salt", "stored_key", "server_key")
        if not isinstance(entry, Mapping) or set(entry) != {*names, "iterations"}:
            raise InvalidRequestError(
                f"{mechanism}: the entry must have {', '.join(names)} and iterations"
            )
        iterations = entry["iterations"]
        if type(iterations) is not int:
            raise InvalidRequestError(f"{mechanism}: iterations is not a number")
        salt, stored, server = (_bytes(mechanism, name, entry[name]) for name in names)
        return cls(mechanism, salt, stored, server, iterations)


def check_iterations(iterations: int) -> None:
    """Raise InvalidRequestError unless `iterations` is in the accepted range."""
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise InvalidRequestError(
            f"iterations={iterations}: the number must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        )


def decoy(
    mechanism: Mechanism, name: str, secret: bytes, models: Sequence[ScramCredential] = ()
) -> ScramCredential:
    """Return keys for a user that does not exist: the same on each call, matching no password.

    An attacker who tries names then gets a salt and iterations as for an existing user, each time
    the same, and fails at the proof after the same time. `secret`: the process's secret; `models`:
    the existing credentials, from which the mechanism, iterations and salt length are drawn.
    """

    def drawn(purpose: str) -> bytes:
        return hmac.digest(secret, f"{purpose} {mechanism} {name}".encode(), "sha512")

    iterations, salt_bytes = ITERATIONS, SALT_BYTES
    if models:
        model = models[int.from_bytes(drawn("model")[:8], "big") % len(models)]
        mechanism, iterations, salt_bytes = model.mechanism, model.iterations, len(model.salt)
    size = hashlib.new(mechanism.hash_name).digest_size
    salt = (drawn("salt") * (1 + salt_bytes // 64))[:salt_bytes]
    return ScramCredential(
        mechanism, salt, drawn("stored")[:size], drawn("server")[:size], iterations
    )


def _salted(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def _bytes(mechanism: Mechanism, name: str, text: object) -> bytes:
    try:
        return base64.b64decode(text if isinstance(text, str) else "?", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequestError(f"{mechanism}: {name} is not base64") from None
