"""Which rule of the kernel's shuts us out, on a /proc made of files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hangdoc.capture.read import permission
from hangdoc.capture.read.permission import Powers, explain, forbidden, own_powers
from hangdoc.doctor import looking

PTRACE = 1 << 19
ME = 1000


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    process(tmp_path, "self", ME)
    process(tmp_path, "77", ME)
    return tmp_path


def process(proc: Path, name: str, user: int, capabilities: int = 0, namespace: str = "user:[4026531837]") -> None:
    folder = proc / name
    (folder / "ns").mkdir(parents=True, exist_ok=True)
    (folder / "status").write_text(
        f"Name:\tpython\nUid:\t{user}\t{user}\t{user}\t{user}\nCapPrm:\t{capabilities:016x}\nCapEff:\t{capabilities:016x}\n"
    )
    for kind, link in (("user", namespace), ("pid", "pid:[4026531836]")):
        (folder / "ns" / kind).unlink(missing_ok=True)
        (folder / "ns" / kind).symlink_to(link)


def powers(*, user: int = ME, sys_ptrace: bool = False, yama: int | None = None) -> Powers:
    return Powers(user, sys_ptrace, yama, ())


@pytest.mark.parametrize(
    ("yama", "why", "remedy"),
    [
        (1, "ancestors only (ptrace_scope 1)", "kernel.yama.ptrace_scope=0"),
        (2, "administrators only (ptrace_scope 2)", "as root"),
        (3, "everybody (ptrace_scope 3)", "reboot"),
    ],
)
def test_yama(proc: Path, yama: int, why: str, remedy: str) -> None:
    shut = explain(77, powers(yama=yama), proc)
    assert why in shut.why
    assert remedy in shut.remedy


def test_yama_one_does_not_shut_out_an_ancestor(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permission, "_descends", lambda pid: pid == 77)
    assert "ptrace_scope" not in explain(77, powers(yama=1), proc).why


def test_another_users_process(proc: Path) -> None:
    process(proc, "77", 4321)
    shut = explain(77, powers(), proc)
    assert "belongs to user 4321" in shut.why
    assert "as root" in shut.remedy


def test_root_without_the_capability_in_a_container(proc: Path) -> None:
    process(proc, "self", 0, capabilities=0xFF)
    process(proc, "77", 0, capabilities=0xFFFF)
    shut = explain(77, powers(user=0), proc)
    assert "capabilities that hangdoc lacks" in shut.why
    assert "--cap-add SYS_PTRACE" in shut.remedy
    process(proc, "77", 4321)
    assert "--cap-add SYS_PTRACE" in explain(77, powers(user=0), proc).remedy


def test_another_user_namespace(proc: Path) -> None:
    process(proc, "77", ME, namespace="user:[4026539999]")
    assert "another user namespace" in explain(77, powers(), proc).why


def test_when_no_rule_explains_it(proc: Path) -> None:
    assert "not dumpable" in explain(77, powers(), proc).why


def test_a_process_that_is_gone(proc: Path) -> None:
    assert explain(78, powers(), proc).why == "the process is gone"
    assert forbidden(2**22 + 1) is not None


def test_own_powers(proc: Path) -> None:
    process(proc, "self", ME, capabilities=PTRACE)
    (proc / "sys/kernel/yama").mkdir(parents=True)
    (proc / "sys/kernel/yama/ptrace_scope").write_text("1\n")
    found = own_powers(proc)
    assert (found.sys_ptrace, found.yama, found.contained) == (True, 1, ())
    process(proc, "self", ME, namespace="user:[4026539999]")
    (proc / "sys/kernel/yama/ptrace_scope").unlink()
    found = own_powers(proc)
    assert (found.sys_ptrace, found.yama, found.contained) == (False, None, ("user",))


def test_we_may_look_at_ourselves() -> None:
    assert forbidden(os.getpid()) is None


@pytest.mark.parametrize(
    ("shut", "yama", "state", "words"),
    [
        (False, None, "ok", "no Yama"),
        (True, 1, "limited", "`watch` works, since its ranks permit it; `attach` to other jobs does not"),
        (True, 2, "limited", "no stacks from outside"),
    ],
)
def test_the_doctor_says_what_yama_means(
    monkeypatch: pytest.MonkeyPatch, shut: bool, yama: int | None, state: str, words: str
) -> None:
    found = permission.shut("Yama says no", "sudo sysctl") if shut else None
    monkeypatch.setattr(looking, "forbidden", lambda pid, powers: found)
    check = looking.permission(powers(yama=yama), 77)
    assert check.state == state
    assert words in check.finding
    assert check.fix == ("sudo sysctl" if shut else "")
