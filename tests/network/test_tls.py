"""PEM files: what is said of each fault, renewal, and clients' certificates."""

import contextlib
import logging
import os
import re
import shlex
import ssl
import subprocess
import warnings
from pathlib import Path

import pytest
import trustme

from sparklog.errors import InvalidRequestError
from sparklog.network.tls import ClientAuth, Tls, TlsFiles, make_context, subject_name


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def files(authority, tmp_path):
    made = authority.issue_cert("localhost", "127.0.0.1")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    for blob in made.cert_chain_pems:
        blob.write_to_path(certificate, append=True)
    made.private_key_pem.write_to_path(key)
    os.chmod(key, 0o600)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return tmp_path


def _files(directory, **given):
    found = {"certificate": str(directory / "cert.pem"), "key": str(directory / "key.pem")}
    return TlsFiles(**(found | given))


def _shake(server, client, *, name="localhost"):
    """Let both shake hands in memory; returns the server's side and a byte's way to it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname=name)
    for _ in range(6):
        for side in (theirs, ours):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    theirs.write(b"x")
    assert ours.read(1) == b"x"
    return ours, theirs


def _client(authority, identity=None):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if identity is not None:
        identity.configure_cert(context)
    return context


@pytest.mark.parametrize("together", [False, True])
def test_a_client_that_trusts_the_authority_connects(files, authority, together):
    given = _files(files)
    if together:
        both = files / "both.pem"
        both.write_bytes((files / "key.pem").read_bytes() + (files / "cert.pem").read_bytes())
        os.chmod(both, 0o600)
        given = TlsFiles(certificate=str(both))
    ours, _ = _shake(make_context(given), _client(authority))
    assert ours.version() == "TLSv1.3"
    assert subject_name(ours.getpeercert()) == ""


def test_nothing_older_than_tls_1_2(files, authority):
    client = _client(authority)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    assert _shake(make_context(_files(files)), client)[0].version() == "TLSv1.2"
    client.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        client.minimum_version = client.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        _shake(make_context(_files(files)), client)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda d: (d / "cert.pem").unlink(), "ssl.keystore.location=.*the file does not exist"),
        (lambda d: (d / "key.pem").unlink(), "ssl.key.location=.*the file does not exist"),
        (lambda d: (d / "cert.pem").write_bytes(b""), "no certificate: the file is not a PEM file"),
        (lambda d: (d / "cert.pem").write_bytes(b"\x30\x82"), "openssl pkcs12 -in"),
        (lambda d: (d / "cert.pem").write_bytes((d / "key.pem").read_bytes()),
         "no certificate in it: it only has (RSA|EC) PRIVATE KEY|only has .*PRIVATE KEY"),
        (lambda d: (d / "key.pem").write_bytes((d / "cert.pem").read_bytes()),
         "no private key: the file only has CERTIFICATE"),
        (lambda d: (d / "cert.pem").write_bytes((d / "cert.pem").read_bytes()[:-400]),
         "can't be used"),
        (lambda d: (d / "key.pem").write_bytes(
            trustme.CA().issue_cert("other").private_key_pem.bytes()), "belong to the first"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said(files, spoil, said):
    spoil(files)
    with pytest.raises(InvalidRequestError, match=said) as refused:
        make_context(_files(files))
    assert refused.value.path in {str(files / "cert.pem"), str(files / "key.pem")}


def test_a_key_may_be_encrypted(files, authority):
    from cryptography.hazmat.primitives import serialization as form

    key = files / "key.pem"
    plain = form.load_pem_private_key(key.read_bytes(), None)
    key.write_bytes(plain.private_bytes(
        form.Encoding.PEM, form.PrivateFormat.PKCS8, form.BestAvailableEncryption(b"secret")
    ))  # fmt: skip
    with pytest.raises(InvalidRequestError, match=r"encrypted: set ssl.key.password"):
        make_context(_files(files))
    with pytest.raises(InvalidRequestError, match=r"password is not the right password") as no:
        make_context(_files(files, key_password="wrong"))
    assert "wrong" not in str(no.value) + repr(_files(files, key_password="wrong"))
    _shake(make_context(_files(files, key_password="secret")), _client(authority))


def test_a_key_that_all_may_read_is_told_of(files, caplog):
    os.chmod(files / "key.pem", 0o644)
    make_context(_files(files))
    (message,) = caplog.messages  # `text` may be JSON after a test with Spark
    assert "all users of this host can read this key" in message
    (advice,) = re.findall(r"run: (chmod 600 .*)", message)
    caplog.clear()
    subprocess.run(shlex.split(advice), check=True)
    make_context(_files(files))
    assert not caplog.messages


def test_a_client_shows_its_certificate(files, authority):
    truststore = str(files / "ca.pem")
    given = _files(files, truststore=truststore, client_auth=ClientAuth.REQUIRED)
    identity = authority.issue_cert("alice@example.org", common_name="alice, the first")
    ours, _ = _shake(make_context(given), _client(authority, identity))
    name = subject_name(ours.getpeercert())
    assert name.startswith("CN=alice\\, the first,") and "O=trustme" in name
    stranger = trustme.CA().issue_cert("mallory@example.org")
    for other in (None, stranger):
        with pytest.raises(ssl.SSLError):
            _shake(make_context(given), _client(authority, other))
    asked = _files(files, truststore=truststore, client_auth=ClientAuth.REQUESTED)
    _shake(make_context(asked), _client(authority))
    with pytest.raises(ssl.SSLError):
        _shake(make_context(asked), _client(authority, stranger))


def test_options_that_need_each_other(files):
    with pytest.raises(InvalidRequestError, match=r"set ssl.truststore.location"):
        _files(files, client_auth=ClientAuth.REQUIRED)
    with pytest.raises(InvalidRequestError, match=r"no effect without ssl.client.auth"):
        _files(files, truststore=str(files / "ca.pem"))
    given = _files(files, truststore=str(files / "key.pem"), client_auth=ClientAuth.REQUIRED)
    with pytest.raises(InvalidRequestError, match=r"ssl.truststore.location=.*no certificate"):
        make_context(given)
    (files / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    given = _files(files, truststore=str(files / "ca.pem"), client_auth=ClientAuth.REQUIRED)
    with pytest.raises(InvalidRequestError, match="the file has a broken certificate"):
        make_context(given)


def _serial(tls, authority):
    _, theirs = _shake(tls.context, _client(authority))
    return theirs.getpeercert()["serialNumber"]


def test_a_renewed_certificate_is_taken_up_and_a_broken_one_is_not(files, authority, caplog):
    caplog.set_level(logging.INFO, "sparklog.network")
    tls = Tls(_files(files))
    first = _serial(tls, authority)
    tls.refresh()
    assert _serial(tls, authority) == first
    for spoil in (b"", None, (files / "cert.pem").read_bytes()[:100]):
        caplog.clear()
        if spoil is None:
            (files / "cert.pem").unlink()
        else:
            (files / "cert.pem").write_bytes(spoil)
        tls.refresh()
        tls.refresh()
        assert caplog.text.count("the previous certificate stays in use") == 1
        assert _serial(tls, authority) == first
    renewed = authority.issue_cert("localhost")
    (files / "key.pem").write_bytes(renewed.private_key_pem.bytes())
    tls.refresh()  # half way: the key is the new one's
    assert _serial(tls, authority) == first
    (files / "cert.pem").write_bytes(renewed.cert_chain_pems[0].bytes())
    tls.refresh()
    assert _serial(tls, authority) != first
    assert "loaded again" in caplog.text


def test_an_authority_that_is_taken_back_is_so(files, authority):
    truststore = files / "ca.pem"
    given = _files(files, truststore=str(truststore), client_auth=ClientAuth.REQUIRED)
    tls = Tls(given)
    client = _client(authority, authority.issue_cert("alice@example.org"))
    _shake(tls.context, client)
    truststore.write_bytes(trustme.CA().cert_pem.bytes())
    tls.refresh()
    with pytest.raises(ssl.SSLError):
        _shake(tls.context, client)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ((), ""),
        (((("countryName", "DE"),), (("organizationName", "x"),), (("commonName", "a"),)),
         "CN=a,O=x,C=DE"),
        (((("commonName", ' a,b+"c"\\ '),),), 'CN=\\ a\\,b\\+\\"c\\"\\\\\\ '),
        (((("commonName", "#1"), ("userId", "u")),), "CN=\\#1+UID=u"),
    ],
)  # fmt: skip
def test_a_subject_is_written_as_kafka_does(subject, name):
    assert subject_name({"subject": subject}) == name
    assert subject_name(None) == ""


def test_a_truncated_chain_is_no_certificate(files):
    text = (files / "cert.pem").read_text()
    Path(files / "cert.pem").write_text(text.replace("-----END CERTIFICATE-----", ""))
    with pytest.raises(InvalidRequestError, match="can't be used"):
        make_context(_files(files))
