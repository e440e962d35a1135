"""Signals and the terminal pass through, with a real pseudo-terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from terminal import DEADLINE, HANGDOC, Terminal, child_of, environment, state, wait_until

PYTHON = sys.executable

# Counts the signals it gets; half a second after the first it ends with how many came.
COUNT = """
import os, signal, sys, time
seen = []
for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1"):
    signal.signal(getattr(signal, name), lambda number, frame: seen.append(number))
if "--own-group" in sys.argv:
    os.setpgid(0, 0)
print("ready", os.getpid(), flush=True)
end = time.monotonic() + 20
while not seen and time.monotonic() < end:
    time.sleep(0.02)
last = time.monotonic() + 0.5
while time.monotonic() < last:
    time.sleep(0.02)
print("seen", *[signal.Signals(number).name for number in seen], flush=True)
sys.exit(40 + len(seen))
"""


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_one(*command: str) -> Terminal:
        opened.append(Terminal(command, environment(), tmp_path))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def test_the_command_sees_the_terminal(terminal: Callable[..., Terminal]) -> None:
    code = (
        "import os, sys; print([os.isatty(n) for n in (0, 1, 2)], os.get_terminal_size(1), "
        "os.tcgetpgrp(0) == os.getpgrp(), input())"
    )
    screen = terminal(*HANGDOC, "watch", PYTHON, "-c", code)
    screen.read_until("watching pid")
    screen.type("an answer\n")
    assert screen.end() == 0
    assert "[True, True, True] os.terminal_size(columns=91, lines=37) True an answer" in screen.output


@pytest.mark.parametrize(("key", "name"), [("\x03", "SIGINT"), ("\x1c", "SIGQUIT")], ids=["ctrl-C", "ctrl-backslash"])
def test_keys_reach_the_command_once(key: str, name: str, terminal: Callable[..., Terminal]) -> None:
    screen = terminal(*HANGDOC, "watch", PYTHON, "-c", COUNT)
    screen.read_until("ready")
    screen.type(key)
    assert screen.end() == 41
    assert f"seen {name}\n" in screen.output


def test_ctrl_c_reaches_a_command_that_left_our_group(terminal: Callable[..., Terminal]) -> None:
    screen = terminal(*HANGDOC, "watch", PYTHON, "-c", COUNT, "--own-group")
    screen.read_until("ready")
    screen.type("\x03")
    assert screen.end() == 41


def test_ctrl_c_ends_a_command_as_it_would_bare(terminal: Callable[..., Terminal]) -> None:
    screen = terminal(*HANGDOC, "watch", "--quiet", "sh", "-c", "echo ready; exec sleep 60")
    screen.read_until("ready")
    screen.type("\x03")
    assert screen.end() == -signal.SIGINT
    assert "hangdoc" not in screen.output


def test_an_impatient_ctrl_c_does_not_change_the_status(terminal: Callable[..., Terminal]) -> None:
    code = (
        "import os, signal, time; signal.signal(signal.SIGINT, lambda *_: os._exit(5)); "
        "print('ready', flush=True); time.sleep(60)"
    )
    screen = terminal(*HANGDOC, "watch", "--quiet", PYTHON, "-c", code)
    screen.read_until("ready")
    wait_until(lambda: screen.type("\x03") or screen.process.poll() is not None, what="the end")
    assert screen.process.poll() == 5
    assert "Traceback" not in screen.output


def test_hangup_of_the_terminal_reaches_the_command(tmp_path: Path, terminal: Callable[..., Terminal]) -> None:
    # hangdoc's first line shows the command: what the command says must not stand there.
    screen = terminal(
        *HANGDOC, "watch", "sh", "-c", 'trap "echo hup > hup; exit 3" HUP; echo re""ady; while :; do sleep 0.1; done'
    )
    screen.read_until("ready")
    os.close(screen.master)
    screen.master = os.open(os.devnull, os.O_RDWR)
    assert screen.process.wait(DEADLINE) == 3
    assert (tmp_path / "hup").read_text() == "hup\n"


def test_ctrl_z_and_fg_of_an_interactive_shell(terminal: Callable[..., Terminal]) -> None:
    screen = terminal("bash", "--norc", "--noprofile", "-i")
    screen.type("PS1='prompt> '\n")
    screen.type(" ".join([*HANGDOC, "watch", "cat"]) + "\n")
    pid = int(screen.read_until(r"watching pid (\d+)").group(1))
    screen.type("before\n")
    screen.read_until("before\nbefore\n")
    screen.type("\x1a")
    screen.read_until("Stopped")
    wait_until(lambda: state(pid) == "T", what="the command's stop")
    screen.type("echo shell-$((40+2))\n")
    screen.read_until("shell-42")
    screen.type("fg\n")
    wait_until(lambda: state(pid) == "S", what="the command's going on")
    screen.type("after\n")
    screen.read_until("after\nafter\n")
    screen.type("\x04")
    screen.type("echo status-$?\n")
    screen.read_until("status-0")
    screen.type("exit\n")
    assert screen.end() == 0


@pytest.fixture
def background(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(*command: str, session: bool = True) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*HANGDOC, "watch", "--quiet", *command],
            env=environment(),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=session,
            preexec_fn=None if session else os.setpgrp,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=DEADLINE)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1"])
def test_signals_sent_to_us_alone_reach_the_command_once(
    name: str, background: Callable[..., subprocess.Popen[str]]
) -> None:
    process = background(PYTHON, "-c", COUNT)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready")
    process.send_signal(getattr(signal, name))
    output, _ = process.communicate(timeout=DEADLINE)
    assert output == f"seen {name}\n"
    assert process.returncode == 41


def test_stop_and_continue_sent_to_us_alone(background: Callable[..., subprocess.Popen[str]]) -> None:
    # In our session: in a group that has nobody outside to continue it, the kernel lets SIGTSTP stop nobody.
    process = background("sh", "-c", "echo ready; exec sleep 60", session=False)
    assert process.stdout is not None
    process.stdout.readline()
    command = child_of(process.pid)
    process.send_signal(signal.SIGTSTP)
    wait_until(lambda: state(command) + state(process.pid) == "TT", what="the stop of both")
    process.send_signal(signal.SIGCONT)
    wait_until(lambda: "T" not in state(command) + state(process.pid), what="the going on of both")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=DEADLINE)
    assert process.returncode == -signal.SIGTERM


def test_ignored_signals_stay_ignored(tmp_path: Path) -> None:
    code = "import signal; print([signal.getsignal(n) == signal.SIG_IGN for n in (signal.SIGHUP, signal.SIGINT)])"
    done = subprocess.run(
        ["sh", "-c", 'trap "" HUP INT; exec "$@"', "sh", *HANGDOC, "watch", "--quiet", PYTHON, "-c", code],
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        timeout=DEADLINE,
        check=True,
    )
    assert done.stdout == b"[True, True]\n"


# A launcher and two ranks without torch; the second waits for what somebody types.
ASKS = """
import os, subprocess, sys, time
if "RANK" not in os.environ:
    line = [sys.executable, *sys.argv]
    ranks = [subprocess.Popen(line, env={**os.environ, "RANK": str(n), "WORLD_SIZE": "2"}) for n in range(2)]
    sys.exit(max(rank.wait() for rank in ranks))
if os.environ["RANK"] == "1":
    input("overwrite? ")
    open("answered", "w").close()
while not os.path.exists("answered"):
    time.sleep(0.5)
"""


def test_a_question_at_a_terminal_is_slow_until_it_is_answered(
    tmp_path: Path, terminal: Callable[..., Terminal]
) -> None:
    (tmp_path / "asks.py").write_text(ASKS)
    screen = terminal(*HANGDOC, "watch", "--stall-after", "2", "--on-hang", "abort", PYTHON, "asks.py")
    screen.read_until(r"hangdoc ◔ slow")
    words = re.escape("Rank 1 is waiting for a person: reading").replace(r"\ ", r"\s+")
    screen.read_until(words)
    screen.read_until(r"counts\s+as\s+a\s+hang\s+in\s+9\s+min\s+5\d\s+s\s+\(--give-up-after\)")
    screen.type("an answer\n")
    assert screen.end() == 0
    assert "✖" not in screen.output
