"""Keys of passwords: the RFCs' vectors, and what a file may not hold."""

import base64
import hashlib
import hmac

import pytest

from sparklog.errors import InvalidRequestError
from sparklog.kafka.credentials import SCRAM, Mechanism, ScramCredential, decoy

SHA_256, SHA_512 = SCRAM
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


def test_keys_of_rfc_7677():
    """The example's proof and signature come out of the keys."""
    made = ScramCredential.from_password(SHA_256, "pencil", iterations=4096, salt=SALT)
    exchange = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,"
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    signature = hmac.digest(made.server_key, exchange, "sha256")
    assert base64.b64encode(signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    mask = hmac.digest(made.stored_key, exchange, "sha256")
    client_key = bytes(a ^ b for a, b in zip(proof, mask, strict=True))
    assert hashlib.sha256(client_key).digest() == made.stored_key


@pytest.mark.parametrize("mechanism", SCRAM)
def test_a_password_matches_itself_only(mechanism):
    made = ScramCredential.from_password(mechanism, "grüße ª, wörld=", iterations=4096)
    assert made.matches("grüße ª, wörld=")
    assert not made.matches("grüße a, wörld=")  # what SASLprep would make of it
    assert not made.matches("")
    again = ScramCredential.from_password(mechanism, "grüße ª, wörld=", iterations=4096)
    assert again.salt != made.salt and again.stored_key != made.stored_key


def test_it_is_read_as_it_was_written_and_shows_no_key():
    made = ScramCredential.from_password(SHA_512, "secret", iterations=5000)
    assert ScramCredential.from_dict(SHA_512, made.to_dict()) == made
    assert repr(made) == f"ScramCredential(mechanism={SHA_512!r}, iterations=5000)"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"salt": "W22Z"}, "salt has 3 bytes"),
        ({"salt": "no base64!"}, "salt is not base64"),
        ({"salt": None}, "salt is not base64"),
        ({"stored_key": "W22Z"}, "stored_key has 3 bytes instead of 32"),
        ({"server_key": ""}, "server_key has 0 bytes"),
        ({"iterations": 4095}, "iterations=4095: the number must be from 4096 to 1000000"),
        ({"iterations": 10**9}, "iterations=1000000000"),
        ({"iterations": "5000"}, "not a number"),
        ({"iterations": True}, "not a number"),
        ({"password": "x"}, "must have salt, stored_key, server_key and iterations"),
    ],
)
def test_what_is_no_credential_is_refused(change, said):
    entry = ScramCredential.from_password(SHA_256, "secret", iterations=4096).to_dict() | change
    with pytest.raises(InvalidRequestError, match=said):
        ScramCredential.from_dict(SHA_256, entry)


@pytest.mark.parametrize("password", ["", "a\0b"])
def test_what_plain_could_not_carry_is_no_password(password):
    with pytest.raises(InvalidRequestError, match="NUL"):
        ScramCredential.from_password(SHA_256, password)


def test_a_decoy_is_as_the_real_ones_and_stays():
    one = decoy(SHA_256, "nobody", b"s")
    assert one == decoy(SHA_256, "nobody", b"s")
    assert one.salt not in {decoy(SHA_256, "noone", b"s").salt, decoy(SHA_256, "nobody", b"t").salt}
    model = ScramCredential.from_password(SHA_512, "x", iterations=4444, salt=bytes(100))
    like = decoy(SHA_256, "nobody", b"s", [model])
    assert (like.mechanism, like.iterations, len(like.salt)) == (SHA_512, 4444, 100)
    assert not like.matches("x")
    with pytest.raises(KeyError):
        _ = Mechanism.PLAIN.hash_name
