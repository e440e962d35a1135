"""How hosts are named and reached."""

from __future__ import annotations

import shlex
import sys
import tracemalloc
from pathlib import Path

import pytest

from hangdoc.capture import transports
from hangdoc.errors import CannotLook, UsageError

REMOTE = ["/opt/my env/hangdoc", "capture", "--job", "MASTER_PORT=1"]


def test_ssh_hands_one_text_to_the_shell_of_the_host() -> None:
    line = transports.ssh(30).command("node0", REMOTE)
    assert line[:2] == ["ssh", "-o"]
    assert line[-3:-1] == ["--", "node0"]
    assert shlex.split(line[-1]) == REMOTE


def test_a_command_of_ones_own_gets_the_words_as_they_are() -> None:
    line = transports.rsh("ssh -J 'jump host' user@{host}").command("node0", REMOTE)
    assert line == ["ssh", "-J", "jump host", "user@node0", *REMOTE]


@pytest.mark.parametrize("template", ["ssh", "", "ssh 'node"])
def test_a_command_without_a_place_for_the_host_is_refused(template: str) -> None:
    with pytest.raises(UsageError, match="--rsh"):
        transports.rsh(template)


@pytest.mark.parametrize(
    ("text", "names"),
    [("a", ["a"]), ("a,b,a", ["a", "b"]), ("a, b", ["a", "b"]), ("10.0.0.1,node-3.lan", ["10.0.0.1", "node-3.lan"])],
)
def test_names_with_commas_need_nothing(text: str, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ClusterShell.NodeSet", None)
    assert transports.host_names(text) == names


def test_node_sets_are_what_clustershell_says() -> None:
    pytest.importorskip("ClusterShell")
    assert transports.host_names("a,b,c[0-2]") == ["a", "b", "c0", "c1", "c2"]
    assert transports.fold(["n0", "n1", "n2", "n7"]) == "n[0-2,7]"
    with pytest.raises(UsageError, match="cannot be read"):
        transports.host_names("c[0-")
    with pytest.raises(UsageError, match="at once"):
        transports.host_names("c[0-29999]")


def test_without_clustershell_a_node_set_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ClusterShell.NodeSet", None)
    with pytest.raises(UsageError) as caught:
        transports.host_names("c[0-2]")
    assert "hangdoc[hosts]" in caught.value.remedy
    assert transports.fold(["n0", "n1"]) == "n0, n1"


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "-oProxyCommand=evil",
        "a,-b",
        "a\x1b,b",
        "a;reboot",
        "$(reboot)",
        "a`id`",
        "a|b",
        "a>b",
        "a'b",
        "{a}",
        "a\\b",
    ],
)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        transports.host_names(text)


@pytest.mark.parametrize(
    "name", ["user@node0", "ssh://me@node0:2222", "fe80::1%eth0", "[::1]", "gpu_node.example-1.org"]
)
def test_what_may_be_a_name_is_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert transports._names([name], "kubectl", "") == (name,)
    if "[" not in name and "@" not in name:
        assert transports.host_names(name) == [name]


@pytest.mark.parametrize("odd", ["-oProxyCommand=reboot", "--as=root", "x;reboot"])
def test_what_a_program_lists_becomes_no_option(odd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, says in (("squeue", "12 n0"), ("scontrol", f"n0\n{odd}"), ("kubectl", f"pod/a\npod/{odd}")):
        (tmp_path / name).write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\n")
        (tmp_path / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(CannotLook, match=r"scontrol names .*, which is no name"):
        transports.slurm("12")
    with pytest.raises(CannotLook, match=r"kubectl names .*, which is no name"):
        transports.kubectl("app=x")


@pytest.mark.parametrize("job", ["", "x", "12;rm", "12.x", "12.", "-1"])
def test_what_is_no_job_of_slurm_is_refused(job: str) -> None:
    with pytest.raises(UsageError, match="no job of Slurm"):
        transports.slurm(job)


def test_where_there_is_no_slurm_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(CannotLook, match="there is no squeue here"):
        transports.slurm("12")
    with pytest.raises(CannotLook, match="there is no kubectl here"):
        transports.kubectl("app=x")


def test_pods_are_entered_by_exec_or_looked_at_from_a_container_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kubectl").write_text("#!/bin/sh\necho pod/w-0\necho pod/w-1\n")
    (tmp_path / "kubectl").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    nodes = transports.kubectl("app=x")
    assert nodes.hosts == ("w-0", "w-1")
    assert nodes.transport.command("w-1", ["hangdoc"]) == ["kubectl", "exec", "w-1", "--", "hangdoc"]
    line = transports.kubectl("app=x", "team", "trainer").transport.command("w-1", ["hangdoc"])
    assert line == ["kubectl", "exec", "--namespace=team", "--container=trainer", "w-1", "--", "hangdoc"]
    line = transports.kubectl("app=x", container="trainer", image="tools:1").transport.command("w-1", ["hangdoc"])
    assert line[:2] == ["kubectl", "debug"]
    assert {"--image=tools:1", "--target=trainer", "--profile=general", "--stdin"} < {*line}
    assert line[-3:] == ["w-1", "--", "hangdoc"]


NODE_SETS = [
    *(
        "@x:y",
        "@@@",
        "n[",
        "n[5-1]",
        "n[0-999999999]",
        "n[0-10000000]&m",
        "n[0-99]m[0-9999]",
        "a,n[0-99999]!n[1-99999]",
    ),
    *("n[0-9999999999999999999999999]", "n[0-9999999/0]", "n[[0-9999999]]", "n[0-9999999"),
]


@pytest.mark.parametrize("text", NODE_SETS)
def test_sets_of_nodes_that_cannot_be_asked(text: str) -> None:
    pytest.importorskip("ClusterShell")
    tracemalloc.start()
    try:
        with pytest.raises(UsageError):
            transports.host_names(text)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("text", "names"), [("n[0-9/3]", 4), ("r[1-2]n[1-3]", 6), ("n[0-19999]", 20_000), ("n[1,3]!n3", 1)]
)
def test_sets_of_nodes_that_can(text: str, names: int) -> None:
    pytest.importorskip("ClusterShell")
    assert len(transports.host_names(text)) == names
