"""`ScramCredential`: what is kept of a password, and how one is checked against it.

    SaltedPassword = PBKDF2(password, salt, iterations)
    StoredKey      = H(HMAC(SaltedPassword, "Client Key"))   shows that a client has the password
    ServerKey      = HMAC(SaltedPassword, "Server Key")      shows a client that we have it, too

Neither key gives the password back, nor lets anybody log in. A password is its UTF-8 bytes, as
Kafka's ScramFormatter has it: no SASLprep.

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
ITERATIONS_MAX: Final = 1_000_000  # half a second of a core for each log in by PLAIN
ITERATIONS: Final = 16_384  # what Kafka's own tools take at most; some 10 ms of the client's time
SALT_BYTES: Final = 32
SALT_BYTES_MIN: Final = 12


class Mechanism(StrEnum):
    """The ways to authenticate, by their names in SASL."""

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
    """A user's keys for one mechanism; its repr shows none.

    Raises: InvalidRequestError: the salt, a key or `iterations` is out of its range.
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
                f"{self.mechanism}: a salt of {len(self.salt)} bytes, want {SALT_BYTES_MIN} or more"
            )
        size = hashlib.new(self.mechanism.hash_name).digest_size
        for name, key in (("stored_key", self.stored_key), ("server_key", self.server_key)):
            if len(key) != size:
                raise InvalidRequestError(
                    f"{self.mechanism}: {name} has {len(key)} bytes, want {size}"
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
        """Make a password's keys, with a random salt by default. Cost: 10 ms at 16,384.

        Raises: InvalidRequestError for an empty password, or iterations out of range.
        """
        if not password or "\0" in password:
            raise InvalidRequestError("a password has one character or more, and no NUL")
        check_iterations(iterations)
        salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
        salted = _salted(mechanism, password, salt, iterations)
        return cls.from_salted_password(mechanism, salted, iterations=iterations, salt=salt)

    @classmethod
    def from_salted_password(
        cls, mechanism: Mechanism, salted: bytes, *, iterations: int, salt: bytes
    ) -> Self:
        """Make the keys of a SaltedPassword, which is what AlterUserScramCredentials brings."""
        name = mechanism.hash_name
        stored = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
        return cls(mechanism, salt, stored, hmac.digest(salted, b"Server Key", name), iterations)

    def matches(self, password: str) -> bool:
        """Tell whether a password has these keys. Cost: as `of`; equal for right and wrong."""
        salted = _salted(self.mechanism, password, self.salt, self.iterations)
        name = self.mechanism.hash_name
        stored = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
        return hmac.compare_digest(stored, self.stored_key)

    def to_dict(self) -> dict[str, object]:
        """Return it as the users' file has it: bytes in base64, names as Kafka's."""
        return {
            "salt": base64.b64encode(self.salt).decode(),
            "stored_key": base64.b64encode(self.stored_key).decode(),
            "server_key": base64.b64encode(self.server_key).decode(),
            "iterations": self.iterations,
        }

    @classmethod
    def from_dict(cls, mechanism: Mechanism, entry: object) -> Self:
        """Read `to_dict`. Raises: InvalidRequestError, which shows no key."""
        names = ("salt", "stored_key", "server_key")
        if not isinstance(entry, Mapping) or set(entry) != {*names, "iterations"}:
            raise InvalidRequestError(f"{mechanism}: want {', '.join(names)} and iterations")
        iterations = entry["iterations"]
        if type(iterations) is not int:
            raise InvalidRequestError(f"{mechanism}: iterations are no number")
        salt, stored, server = (_bytes(mechanism, name, entry[name]) for name in names)
        return cls(mechanism, salt, stored, server, iterations)


def check_iterations(iterations: int) -> None:
    """Raise InvalidRequestError unless a client takes so many, and a server stands them."""
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise InvalidRequestError(
            f"iterations={iterations}: want {ITERATIONS_MIN}..{ITERATIONS_MAX}"
        )


def decoy(
    mechanism: Mechanism, name: str, secret: bytes, models: Sequence[ScramCredential] = ()
) -> ScramCredential:
    """Return keys for a user that isn't there: always the same ones, and nobody's password.

    Whoever tries names is then told of salt and iterations as for a real one, time and again, and
    fails at the proof as with a wrong password, after as long. `secret`: the process's own;
    `models`: the real ones, of which one's mechanism, iterations and salt's length are taken.
    """

    def drawn(what: str) -> bytes:
        return hmac.digest(secret, f"{what} {mechanism} {name}".encode(), "sha512")

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
        raise InvalidRequestError(f"{mechanism}: {name} is no base64") from None
