"""The exchange of one connection, message by message, against a client by scramp and the RFCs."""

import itertools
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient, ScramException

from sparklog.kafka import sasl
from sparklog.kafka.credentials import SCRAM, Mechanism, ScramCredential
from sparklog.kafka.sasl import Failure, Refused, SaslServer, State
from sparklog.kafka.users import ALL, User, Users, change_users

MECHANISMS = (*SCRAM, Mechanism.PLAIN)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    made = str(tmp_path_factory.mktemp("sasl") / "users.json")

    def fill(users):
        keys = {m: ScramCredential.from_password(m, "alice-secret", iterations=4096) for m in SCRAM}
        users["alice"] = User("alice", ALL, keys)
        users["a=b,c"] = User("a=b,c", ALL, keys)
        users["CN=loader"] = User("CN=loader", ALL, {})
        only = {SCRAM[0]: ScramCredential.from_password(SCRAM[0], "bob-secret", iterations=4096)}
        users["bob"] = User("bob", ALL, only)

    change_users(made, fill)
    return made


@pytest.fixture(scope="module")
def users(path):
    return Users(path)


def _server(users, mechanism, **options):
    server = SaslServer(users, MECHANISMS, **options)
    server.handshake(mechanism, version=1)
    return server


def _log_in(server, mechanism, name, password, now_ms=0.0):
    """What a client does; returns the last answer."""
    if mechanism is Mechanism.PLAIN:
        return server.step(f"\0{name}\0{password}".encode(), now_ms=now_ms)
    client = ScramClient([mechanism.value], name, password)
    first = server.step(client.get_client_first().encode(), now_ms=now_ms)
    client.set_server_first(first.token.decode())
    last = server.step(client.get_client_final().encode(), now_ms=now_ms)
    client.set_server_final(last.token.decode())  # it checks the server's signature
    return last


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["alice", "a=b,c"])
def test_a_user_is_who_has_the_password(users, mechanism, name):
    server = _server(users, mechanism)
    assert not server.authenticated
    assert _log_in(server, mechanism, name, "alice-secret").session_lifetime_ms == 0
    assert (server.authenticated, server.user) == (True, name)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    ("name", "password"),
    [("alice", "wrong"), ("nobody", "alice-secret"), ("CN=loader", "x"), ("bob", "alice-secret")],
)
def test_others_are_told_one_and_the_same(users, mechanism, name, password):
    server = _server(users, mechanism)
    with pytest.raises(Refused) as refused:
        _log_in(server, mechanism, name, password)
    assert refused.value.failure is Failure.SASL_AUTHENTICATION_FAILED
    assert refused.value.message == (
        "Authentication failed: Invalid username or password"
        if mechanism is Mechanism.PLAIN
        else "Authentication failed during authentication due to invalid credentials with SASL "
        f"mechanism {mechanism}"
    )
    assert (server.state, server.user) == (State.FAILED, None)
    with pytest.raises(Refused):
        _log_in(server, mechanism, "alice", "alice-secret")


def test_plain_takes_a_user_who_has_but_one_kind_of_keys(users):
    server = _server(users, Mechanism.PLAIN)
    _log_in(server, Mechanism.PLAIN, "bob", "bob-secret")
    assert server.user == "bob"


def test_rfc_7677_word_for_word(path, monkeypatch):
    salt = b"[m\x99h\x9d\x125\x8e\xec\xa0K\x14\x126\xfa\x81"
    keys = ScramCredential.from_password(SCRAM[0], "pencil", iterations=4096, salt=salt)
    users = Users(path)
    users._known = {"user": User("user", ALL, {SCRAM[0]: keys})}
    server = _server(users, SCRAM[0])
    nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    server._exchange = sasl._Scram(users, SCRAM[0], nonce)
    first = server.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", now_ms=0)
    whole = f"r=rOprNGfwEbeRWgbNEkqO{nonce}"
    assert first.token.decode() == f"{whole},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = f"c=biws,{whole},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    last = server.step(final.encode(), now_ms=0)
    assert last.token == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.user == "user"


def test_an_unknown_user_is_told_of_salt_and_iterations_as_a_known_one(users):
    def first(name):
        answer = _server(users, SCRAM[0]).step(f"n,,n={name},r=abc".encode(), now_ms=0).token
        nonce, salt, iterations = answer.decode().split(",")
        assert nonce.startswith("r=abc") and len(nonce) > 30
        return salt, iterations

    assert first("nobody") == first("nobody") != first("noone")
    assert first("nobody")[1] == first("alice")[1] == "i=4096"
    assert len(first("nobody")[0]) == len(first("alice")[0])


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (b"", "expected 3 tokens, got 1"),
        (b"alice\0alice-secret", "expected 3 tokens, got 2"),
        (b"\0a\0b\0c", "expected 3 tokens, got 4"),
        (b"\0\0x", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"bob\0alice\0alice-secret", "authorization id that is different"),
        (b"\0alice\0\xff\xff", "invalid credentials"),
        (b"\0alice\0" + b"x" * (64 << 10), "invalid credentials"),
    ],
)
def test_a_plain_token_that_is_none(users, token, said):
    server = _server(users, Mechanism.PLAIN)
    with pytest.raises(Refused, match=said):
        server.step(token, now_ms=0)
    assert server.state is State.FAILED


def test_a_token_that_is_too_large_is_not_looked_at(users):
    """A good user name and password behind 64 KiB of text that SASL allows there."""
    server = _server(users, SCRAM[0])
    with pytest.raises(Refused, match="invalid credentials"):
        server.step(b"n,,n=alice,r=" + b"x" * sasl.TOKEN_BYTES_MAX, now_ms=0)
    assert server.state is State.FAILED


def test_a_user_who_was_just_deleted_does_not_come_in(path, tmp_path):
    """Before the endpoint's next look at the file, too."""
    own = str(tmp_path / "users.json")
    shutil.copyfile(path, own)
    users = Users(own)
    server = _server(users, Mechanism.PLAIN)
    change_users(own, lambda known: known.pop("alice"))
    with pytest.raises(Refused):
        _log_in(server, Mechanism.PLAIN, "alice", "alice-secret")
    assert server.user is None


def test_a_plain_user_may_ask_to_be_himself(users):
    server = _server(users, Mechanism.PLAIN)
    server.step(b"alice\0alice\0alice-secret", now_ms=0)
    assert server.user == "alice"


def test_a_mechanism_that_is_not_enabled(users):
    server = SaslServer(users, SCRAM)
    with pytest.raises(Refused) as refused:
        server.handshake("PLAIN", version=1)
    assert refused.value.failure is Failure.UNSUPPORTED_SASL_MECHANISM
    with pytest.raises(Refused):
        server.step(b"\0alice\0alice-secret", now_ms=0)
    assert server.user is None


def test_tokens_come_after_the_handshake_and_before_the_end(users):
    with pytest.raises(Refused) as refused:
        SaslServer(users, MECHANISMS).step(b"x", now_ms=0)
    assert refused.value.failure is Failure.ILLEGAL_SASL_STATE
    server = _server(users, Mechanism.PLAIN)
    with pytest.raises(Refused) as refused:
        server.handshake("PLAIN", version=1)
    assert refused.value.failure is Failure.ILLEGAL_SASL_STATE
    server = _server(users, Mechanism.PLAIN)
    _log_in(server, Mechanism.PLAIN, "alice", "alice-secret")
    with pytest.raises(Refused, match="after successful authentication"):
        server.step(b"\0alice\0alice-secret", now_ms=0)


def test_the_first_handshakes_version_says_how_tokens_come(users):
    server = SaslServer(users, MECHANISMS)
    server.handshake("PLAIN", version=0)
    assert server.raw
    _log_in(server, Mechanism.PLAIN, "alice", "alice-secret")
    server.handshake("PLAIN", version=1)
    assert not server.raw


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_session_ends_unless_its_client_authenticates_again(users, mechanism):
    server = _server(users, mechanism, max_reauth_ms=1000)
    assert not server.expired(10**9)  # as long as it isn't anybody's
    assert _log_in(server, mechanism, "alice", "alice-secret").session_lifetime_ms == 1000
    assert not server.expired(999)
    assert server.expired(1000)
    server.handshake(mechanism, version=1)
    _log_in(server, mechanism, "alice", "alice-secret", now_ms=1500)
    assert server.expired(2500) and not server.expired(2499)


def test_a_session_stays_its_users_and_its_mechanisms(users):
    for mechanism, name, said in (
        (Mechanism.PLAIN, "a=b,c", "Cannot change principals during re-authentication"),
        (SCRAM[0], "alice", "not supported for re-authentication of mechanism 'PLAIN'"),
    ):
        server = _server(users, Mechanism.PLAIN)
        _log_in(server, Mechanism.PLAIN, "alice", "alice-secret")
        with pytest.raises(Refused, match=said):
            server.handshake(mechanism, version=1)
            _log_in(server, mechanism, name, "alice-secret")
        assert not server.authenticated


@pytest.mark.parametrize("mechanism", SCRAM)
def test_no_bit_of_the_proof_may_be_another(users, mechanism):
    for bit in itertools.chain(range(0, 8), range(100, 108)):
        client = ScramClient([mechanism.value], "alice", "alice-secret")
        server = _server(users, mechanism)
        client.set_server_first(
            server.step(client.get_client_first().encode(), now_ms=0).token.decode()
        )
        final = bytearray(client.get_client_final().encode())
        at = final.index(b"p=") + 2 + bit // 8
        final[at] ^= 1 << bit % 8
        with pytest.raises(Refused):
            server.step(bytes(final), now_ms=0)
        assert server.user is None


FIRSTS = st.sampled_from([
    b"n,,n=alice,r=abc", b"y,,n=alice,r=abc", b"p=tls-unique,,n=alice,r=abc", b"n,a=b,n=alice,r=a",
    b"n,,m=ext,n=alice,r=abc", b"n,,n=alice,r=abc,tokenauth=true", b"n,,n==,r=a", b"n,,n=alice,r=",
])  # fmt: skip


@given(st.one_of(st.binary(max_size=60), FIRSTS), st.binary(max_size=80))
def test_no_bytes_get_in_or_break_it(users, first, second):
    for mechanism in MECHANISMS:
        server = _server(users, mechanism)
        with pytest.raises(Refused):
            server.step(first, now_ms=0)
            server.step(second, now_ms=0)
        assert server.user is None and server.state is State.FAILED


def test_the_server_signs_only_what_it_was_shown(users):
    """A server that lies (a decoy's) can't satisfy a client that checks."""
    client = ScramClient(["SCRAM-SHA-256"], "alice", "other")
    server = _server(users, SCRAM[0])
    client.set_server_first(
        server.step(client.get_client_first().encode(), now_ms=0).token.decode()
    )
    with pytest.raises(Refused):
        server.step(client.get_client_final().encode(), now_ms=0)
    with pytest.raises(ScramException):
        client.set_server_final("v=AAAA")


@pytest.mark.parametrize("mechanism", SCRAM)
def test_the_nonce_of_an_old_librdkafka_is_taken_and_no_other(users, mechanism):
    """Its client's part twice (librdkafka#4895); a wrong password or another nonce stays wrong."""

    class Old(ScramClient):
        def get_client_final(self):
            nonce = type(self.nonce)
            self.nonce = nonce(self.begin + str(self.nonce))
            return super().get_client_final()

    for begin, password in ((None, "alice-secret"), (None, "wrong"), ("x", "alice-secret")):
        client = Old([mechanism.value], "alice", password)
        client.begin = str(client.c_nonce) if begin is None else begin
        server = _server(users, mechanism)
        client.set_server_first(
            server.step(client.get_client_first().encode(), now_ms=0).token.decode()
        )
        final = client.get_client_final().encode()
        if (begin, password) == (None, "alice-secret"):
            client.set_server_final(server.step(final, now_ms=0).token.decode())
            assert server.user == "alice"
        else:
            with pytest.raises(Refused):
                server.step(final, now_ms=0)
            assert server.user is None
