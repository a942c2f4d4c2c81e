"""The users' file: what it may hold, how it is replaced, and how an endpoint follows it."""

import json
import logging
import os
import re
import shlex
import subprocess
import threading
from pathlib import Path

import pytest

from sparklog.errors import InvalidRequestError
from sparklog.kafka.credentials import SCRAM, Mechanism, ScramCredential
from sparklog.kafka.users import (
    NONE,
    Right,
    User,
    Users,
    change_users,
    check_name,
    parse_rights,
    read_users,
)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "users.json")


def _user(name, rights="read", password="secret"):
    keys = {SCRAM[0]: ScramCredential.from_password(SCRAM[0], password, iterations=4096)}
    return User(name, parse_rights(rights), keys)


def _add(path, name, **given):
    change_users(path, lambda users: users.update({name: _user(name, **given)}))


def test_what_is_written_is_read(path):
    _add(path, "alice", rights="read,admin")
    _add(path, "CN=bob,O=x")
    users = read_users(path)
    assert list(users) == ["CN=bob,O=x", "alice"]
    assert users["alice"].rights == {Right.READ, Right.ADMIN}
    assert users["alice"].credentials[SCRAM[0]].matches("secret")
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.listdir(os.path.dirname(path)) == ["users.json"]


def test_the_passwords_are_not_in_it(path):
    _add(path, "alice", password="correct horse")
    text = Path(path).read_text()
    assert "horse" not in text and "alice" in text


def test_a_group_that_may_read_it_still_may_and_a_link_stays_one(path, tmp_path):
    _add(path, "alice")
    os.chmod(path, 0o644)
    link = str(tmp_path / "link.json")
    os.symlink(path, link)
    _add(link, "bob")
    assert os.path.islink(link) and set(read_users(path)) == {"alice", "bob"}
    assert os.stat(path).st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a users' file"),
        ("\xff", "not UTF-8"),
        ("[" * 100_000, "not a users' file"),
        ("[]", "not a users' file: it must"),
        ('{"users": []}', "kafka-users` creates one"),
        ('{"users": {}, "user": {}}', "not a users' file: it must"),
        ('{"users": {"a": {"rights": []}, "a": {"rights": ["admin"]}}}', "a name occurs twice"),
        ('{"users": {"a": {"rights": [], "rights": ["admin"]}}}', "a name occurs twice"),
        ('{"users": {"a": {}}}', "user 'a': the entry must be an object with rights"),
        ('{"users": {"a": {"rights": "read"}}}', "rights must be a list"),
        ('{"users": {"a": {"rights": ["all"]}}}', "rights must be among read, write, admin"),
        ('{"users": {"a": {"rights": [], "password": "x"}}}', "'password': a user may have rights"),
        ('{"users": {"a": {"rights": [], "SCRAM-SHA-256": {}}}}', "the entry must have salt"),
        ('{"users": {"": {"rights": []}}}', "name must have 1 to 255 bytes"),
        ('{"users": {"a\\u0000": {"rights": []}}}', "isn't printable"),
    ],
)
def test_what_is_no_users_file_is_refused_by_name(path, text, said):
    with open(path, "w", encoding="latin-1") as file:
        file.write(text)
    os.chmod(path, 0o600)
    with pytest.raises(InvalidRequestError, match=said) as refused:
        read_users(path)
    assert refused.value.path == path and path in str(refused.value)
    with pytest.raises(InvalidRequestError):
        _add(path, "alice")
    assert Path(path).read_text("latin-1") == text


def test_a_file_that_is_not_there_and_one_that_anybody_may_write(path, caplog):
    with pytest.raises(InvalidRequestError, match=f"kafka-users {path} --add NAME"):
        read_users(path)
    with pytest.raises(InvalidRequestError, match="of the users file does not exist"):
        _add(f"{path}/x/y.json", "alice")
    _add(path, "alice")
    os.chmod(path, 0o622)
    with pytest.raises(InvalidRequestError, match="run: chmod 600") as refused:
        read_users(path)
    assert not caplog.text
    for mode, refusal in ((0o622, str(refused.value)), (0o644, "")):
        os.chmod(path, mode)
        if not refusal:
            assert "alice" in read_users(path)
            assert "is world-readable" in caplog.text
        (advice,) = re.findall(r"run: (chmod 600 .*)", refusal or caplog.text)
        subprocess.run(shlex.split(advice), check=True)
        caplog.clear()
        assert "alice" in read_users(path) and not caplog.text


def test_a_change_that_fails_leaves_the_file(path):
    _add(path, "alice")
    before = Path(path).read_text()

    def fail(users):
        users.clear()
        raise InvalidRequestError("no")

    with pytest.raises(InvalidRequestError, match="no"):
        change_users(path, fail)
    assert Path(path).read_text() == before
    assert os.listdir(os.path.dirname(path)) == ["users.json"]


def test_two_who_change_it_wait_for_each_other(path):
    names = [f"user{n}" for n in range(12)]
    threads = [threading.Thread(target=_add, args=(path, name)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(read_users(path)) == set(names)


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb", "a\u200bb", "\uff41", "\u2168", "\0"])
def test_a_name_that_reads_as_another_is_none(name):
    with pytest.raises(InvalidRequestError):
        check_name(name)


@pytest.mark.parametrize("name", ["alice", "a=b,c", "CN=x,O=Größe", "Łódź 1"])
def test_a_name(name):
    check_name(name)


# --- an endpoint's ---------------------------------------------------------------------------


def test_nobody_without_a_file():
    users = Users(None)
    users.refresh()
    assert users.find("alice") is None and users.rights("alice") == NONE
    assert users.credential("alice", Mechanism.PLAIN)[1] is False


def test_a_change_is_taken_up(path):
    _add(path, "alice")
    users = Users(path)
    _add(path, "bob", rights="write")
    assert users.find("bob") is None  # from memory
    users.refresh()
    assert users.rights("bob") == {Right.WRITE}
    change_users(path, lambda users: users.clear())
    users.refresh()
    assert users.rights("alice") == NONE


def test_what_was_known_stays_while_the_file_is_gone_or_broken(path, caplog):
    caplog.set_level(logging.INFO, "sparklog.kafka")
    _add(path, "alice")
    users = Users(path)
    good = Path(path).read_text()
    for bad in (None, "{", json.dumps({"users": {"alice": {"rights": ["all"]}}})):
        caplog.clear()
        os.unlink(path)
        if bad is not None:
            with open(path, "w") as file:
                file.write(bad)
            os.chmod(path, 0o600)
        users.refresh()
        users.refresh()
        assert users.rights("alice") == {Right.READ}
        assert caplog.text.count("the users stay as they were") == 1
        with open(path, "w") as file:
            file.write(good)
    os.chmod(path, 0o600)
    users.refresh()
    assert users.rights("alice") == {Right.READ} and "read again, 1 users" in caplog.text


def test_an_endpoint_does_not_begin_without_its_file(path):
    with pytest.raises(InvalidRequestError, match="no such users' file"):
        Users(path)


def test_whoever_tries_names_is_told_of_one_of_the_real_ones_iterations(path):
    _add(path, "alice")
    users = Users(path)
    keys, exists = users.credential("nobody", SCRAM[0])
    assert (exists, keys.iterations, keys.mechanism) == (False, 4096, SCRAM[0])
    keys, exists = users.credential("nobody", Mechanism.PLAIN)
    assert (exists, keys.iterations, keys.mechanism) == (False, 4096, SCRAM[0])
    keys, exists = users.credential("alice", SCRAM[1])
    assert (exists, keys.mechanism) == (False, SCRAM[1])
