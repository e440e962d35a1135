"""Hosts that ask other hosts: who asks whom, and what becomes of the hosts below one that fails."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from cases import case
from hosts_of_a_case import on_two_hosts

from hangdoc.capture import relay
from hangdoc.capture.asking import HostsRequest, SilentError
from hangdoc.capture.relay import hand_over, parts
from hangdoc.capture.remote import snapshot_of_hosts
from hangdoc.capture.request import CaptureOptions
from hangdoc.capture.transports import Transport, rsh
from hangdoc.diagnosis import diagnose
from hangdoc.errors import CannotLook, UsageError
from hangdoc.model.codec import dump_snapshot, load_snapshot
from hangdoc.model.snapshot import JobSnapshot

JOB = load_snapshot(case("uneven_batches"))
RELAYS = f"""\
export BY=$1
exec {sys.executable} -c '
import os, sys
from hangdoc.capture.relay import hand_over
from hangdoc.capture.request import CaptureOptions
own = lambda: open(os.environ["BY"], "rb").read()
os.write(1, b"Welcome!\\n" + hand_over(sys.argv[-1], CaptureOptions(), {{}}, own))
' "$@"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host answers with what is in the file of its name. Asked with --relay, it does what the script 'relay' does.
    Each is noted in the file 'asked', with the host that asked it."""
    monkeypatch.delenv("SUDO_UID", raising=False)
    for name, part in zip("ab", on_two_hosts(JOB, {0, 1}), strict=True):
        dump_snapshot(part, tmp_path / name)
    lines = ['cd "$(dirname "$0")"', "echo $1 ${BY:-us} >> asked", 'case "$*" in *--relay*) exec ./relay "$@" ;; esac']
    (tmp_path / "ask").write_text("\n".join(["#!/bin/sh", *lines, 'cat "$1"']) + "\n")
    (tmp_path / "ask").chmod(0o700)
    return tmp_path


def relays(folder: Path, script: str) -> None:
    (folder / "relay").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "relay").chmod(0o700)


def asked(folder: Path, *hosts: str, at_once: int, transport: Transport | None = None) -> JobSnapshot:
    how = transport or rsh(f"{folder}/ask {{host}}")
    return snapshot_of_hosts(HostsRequest(hosts, how, ["hangdoc"], seconds=20.0, at_once=at_once))


def who_asked(folder: Path) -> Mapping[str, str]:
    """Host → who asked it, separated by commas."""
    found: dict[str, str] = {}
    for line in (folder / "asked").read_text().splitlines():
        host, by = line.split()
        found[host] = f"{found[host]},{by}" if host in found else by
    return found


def test_hosts_are_parted_in_their_order() -> None:
    assert parts("abcde", 2) == [["a", "b"], ["c", "d", "e"]]
    assert parts("abc", 64) == [["a"], ["b"], ["c"]]
    assert parts("abc", 1) == [["a", "b", "c"]]
    sizes = [len(part) for part in parts([str(number) for number in range(1000)], 64)]
    assert (len(sizes), sum(sizes), {*sizes}) == (64, 1000, {15, 16})


def test_the_first_of_a_part_asks_the_others(folder: Path) -> None:
    relays(folder, RELAYS)
    whole = asked(folder, "a", "b", at_once=1)
    assert who_asked(folder) == {"a": "us", "b": "a"}
    assert whole.unavailable == asked(folder, "a", "b", at_once=2).unavailable
    assert diagnose(whole).culprits == (2,)
    assert {rank.rank: rank.host for rank in whole.ranks} == {0: "a", 1: "a", 2: "b", 3: "b"}


def test_a_host_that_its_relay_cannot_reach_is_asked_from_here_and_named_once(folder: Path) -> None:
    relays(folder, RELAYS)
    whole = asked(folder, "a", "b", "nowhere", at_once=1)
    assert who_asked(folder) == {"a": "us", "b": "a", "nowhere": "a,us"}
    (note,) = [note.why for note in whole.unavailable if note.what == "hosts"]
    assert note.startswith("nowhere: cat: ")
    assert diagnose(whole).culprits == (2,)


@pytest.mark.parametrize(
    "script",
    [
        "echo 'hangdoc capture: error: unrecognized arguments: --relay' >&2; exit 2",
        "echo garbage",
        "printf 'hangdoc-relay/1\\nnonsense\\n'",
        'printf \'hangdoc-relay/1\\n{"host": "b", "bytes": 99999999}\\nabc\'',
        'printf \'hangdoc-relay/1\\n{"host": "elsewhere", "bytes": 3}\\nabc\'',
        'printf \'hangdoc-relay/1\\n{"host": ["b"], "bytes": -1}\\nabc\'',
        'printf \'hangdoc-relay/1\\n{"host": "b", "bytes": 3}\\nabc\'',  # no snapshot
        "kill -9 $$",
    ],
)
def test_below_a_host_that_hands_nothing_over_all_are_asked_from_here(folder: Path, script: str) -> None:
    relays(folder, script)
    whole = asked(folder, "a", "b", at_once=1)
    assert who_asked(folder) == {"a": "us,us", "b": "us"}
    assert [note for note in whole.unavailable if note.what == "hosts"] == []
    assert diagnose(whole).culprits == (2,)


def test_only_hosts_that_may_reach_each_other_ask_each_other(folder: Path) -> None:
    pods = Transport("kubectl", (f"{folder}/ask", "{host}"))
    assert diagnose(asked(folder, "a", "b", at_once=1, transport=pods)).culprits == (2,)
    assert who_asked(folder) == {"a": "us", "b": "us"}


def test_a_token_passes_every_shell_and_what_is_none_is_refused(tmp_path: Path) -> None:
    request = HostsRequest(["b c", "$d"], rsh("'jump to' {host}"), ["/opt/my env/hangdoc"], seconds=5.0)
    token = relay._token(request, request.hosts)
    assert not {*token} - {*"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_="}
    known = relay._request(token, CaptureOptions(), {})
    assert (known.hosts, known.transport.words, known.hangdoc) == (
        ("b c", "$d"), ("jump to", "{host}"), ("/opt/my env/hangdoc",),
    )  # fmt: skip
    good = json.loads(base64.urlsafe_b64decode(token))
    for change in ({"hosts": "b"}, {"words": [1]}, {"seconds": "x"}, {"seconds": -1}, {"hangdoc": None}):
        bad = base64.urlsafe_b64encode(json.dumps({**good, **change}).encode()).decode()
        with pytest.raises(UsageError, match="--relay cannot be read"):
            hand_over(bad, CaptureOptions(), {}, bytes)
    for bad in ("", "x", "é", base64.urlsafe_b64encode(b"[" * 10_000).decode()):
        with pytest.raises(UsageError):
            hand_over(bad, CaptureOptions(), {}, bytes)


def test_under_sudo_nothing_is_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = HostsRequest(["b"], rsh(f"{folder}/ask {{host}}"), ["hangdoc"])
    monkeypatch.setenv("SUDO_UID", "1000")
    with pytest.raises(UsageError, match="under sudo"):
        hand_over(relay._token(request, ["b"]), CaptureOptions(), {}, bytes)
    assert not (folder / "asked").exists()


def test_a_relay_that_sees_no_job_itself_hands_the_others_over(folder: Path) -> None:
    def own() -> bytes:
        raise CannotLook("no job runs here", "Look elsewhere.")

    request = HostsRequest(["b"], rsh(f"{folder}/ask {{host}}"), ["hangdoc"], seconds=20.0)
    found = relay._frames(hand_over(relay._token(request, ["b"]), CaptureOptions(), {}, own))
    silent = found[""]
    assert isinstance(silent, SilentError)
    assert (silent.why, silent.remedy) == ("no job runs here", "Look elsewhere.")
    assert found["b"] == (folder / "b").read_bytes()
