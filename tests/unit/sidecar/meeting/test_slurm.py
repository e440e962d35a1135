"""Which host Slurm's variables have the watches meet on, and which of them opens the place."""

from __future__ import annotations

from itertools import islice

import pytest

from hangdoc.sidecar.meeting import slurm
from hangdoc.sidecar.meeting.slurm import Step, node_names, step_of

ON_N2 = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_JOB_NODELIST": "n[1-4]",
    "SLURM_STEP_NODELIST": "n[2-4]",
    "SLURMD_NODENAME": "n2",
    "SLURM_LOCALID": "0",
}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("a", ["a"]),
        ("a,b-1.lan", ["a", "b-1.lan"]),
        ("n[01-03,7],x", ["n01", "n02", "n03", "n7", "x"]),
        ("r[1-2]n[8-9]-ib,z", ["r1n8-ib", "r1n9-ib", "r2n8-ib", "r2n9-ib", "z"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[,a", []),
        ("n[x-y]", []),
        ("n[1-", []),
    ],
)
def test_names_of_a_list(text: str, names: list[str]) -> None:
    assert list(node_names(text)) == names


def test_of_a_long_list_only_the_first_names_are_made() -> None:
    assert list(islice(node_names("n[0-999999999]"), 2)) == ["n0", "n1"]


def test_the_first_watch_on_the_first_host_of_the_step_leads() -> None:
    found = step_of(ON_N2, "whatever")
    assert found == Step("n2", "n3", 23719, "7-0", leads=True)
    for other in ({"SLURM_LOCALID": "1"}, {"SLURMD_NODENAME": "n3"}, {"SLURMD_NODENAME": "", "HOST": "n1"}):
        seen = step_of({**ON_N2, **other}, "n1.example.org")
        assert seen is not None
        assert (seen.first, seen.port, seen.name, seen.leads) == (found.first, found.port, found.name, False)


def test_in_an_allocation_without_a_step_the_name_of_the_host_tells() -> None:
    allocation = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]"}
    for host, leads in (("n1.example.org", True), ("n2", False)):
        found = step_of(allocation, host)
        assert found is not None
        assert (found.first, found.name, found.leads) == ("n1", "7-", leads)


@pytest.mark.parametrize(
    "changes",
    [
        {"SLURM_JOB_ID": ""},
        {"SLURM_JOB_ID": "7;rm"},
        {"SLURM_STEP_NODELIST": "n2"},
        {"SLURM_STEP_NODELIST": "", "SLURM_JOB_NODELIST": ""},
        {"SLURM_STEP_NODELIST": "-oProxyCommand=x y,b"},
        {"SLURM_STEP_NODELIST": "n," * 40_000},
    ],
)
def test_what_names_no_step_of_several_hosts(changes: dict[str, str]) -> None:
    assert step_of({**ON_N2, **changes}, "n2") is None


def test_jobs_and_steps_have_ports_of_their_own() -> None:
    steps = [step_of({**ON_N2, "SLURM_JOB_ID": str(job), "SLURM_STEP_ID": str(number)}, "n2") for job in range(20)
             for number in range(5)]  # fmt: skip
    ports = [step.port for step in steps if step is not None]
    assert len(ports) == 100
    assert len({*ports}) > 95
    assert all(20_000 <= port < 30_000 for port in ports)


def test_a_name_that_is_a_loopback_address_here_is_not_where_others_come_to(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = {"n2": "10.9.8.7", "own": "127.0.1.1", "n3": "127.0.0.1"}

    def lookup(host: str, port: object, **_: object) -> list[tuple[object, ...]]:
        return [(0, 0, 0, "", (addresses[host], port))]

    monkeypatch.setattr(slurm.socket, "getaddrinfo", lookup)
    assert Step("n2", "n3", 1, "", leads=True).own_address() == "10.9.8.7"
    # The way to the second host; here that is this machine.
    assert Step("own", "n3", 1, "", leads=True).own_address() == "127.0.0.1"
