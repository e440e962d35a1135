"""The watched command must not be able to tell that hangdoc is there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from terminal import DEADLINE, HANGDOC, environment

PYTHON = sys.executable


def watch(*arguments: str, cwd: Path, stdin: bytes = b"", **extra: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*HANGDOC, "watch", *arguments],
        input=stdin,
        capture_output=True,
        cwd=cwd,
        env=environment(**extra),
        timeout=DEADLINE,
        check=False,
    )


@pytest.mark.parametrize("status", [0, 1, 2, 7, 124, 125, 255])
def test_exit_status_is_the_commands(status: int, tmp_path: Path) -> None:
    assert watch("sh", "-c", f"exit {status}", cwd=tmp_path).returncode == status


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGINT])
def test_dies_of_the_signal_that_killed_the_command(number: int, tmp_path: Path) -> None:
    done = watch("sh", "-c", f"kill -{number} $$", cwd=tmp_path)
    assert done.returncode == -number
    assert list(tmp_path.iterdir()) == [], "no core dump, no run directory"


def test_one_start_line_and_no_more(tmp_path: Path) -> None:
    done = watch("echo", "hello", cwd=tmp_path)
    assert done.stdout == b"hello\n"
    assert done.stderr.decode().startswith("hangdoc: watching pid ")
    assert done.stderr.count(b"\n") == 1
    assert watch("--quiet", "echo", cwd=tmp_path).stderr == b""
    assert list(tmp_path.iterdir()) == []


def test_the_start_line_shows_no_control_characters(tmp_path: Path) -> None:
    done = watch("true", "a\x1b[31mb\nc\u202ed", cwd=tmp_path)
    assert done.stderr.count(b"\n") == 1
    assert b"\x1b" not in done.stderr
    assert "\u202e" not in done.stderr.decode()


ARGUMENTS = ["--help", "--quiet", "", "two words", "--", "-x", "--stall-after", "3", "ü*$HOME"]


@pytest.mark.parametrize("dashes", [[], ["--"]])
def test_arguments_are_passed_on_untouched(dashes: list[str], tmp_path: Path) -> None:
    code = "import sys, json; print(json.dumps(sys.argv[1:]))"
    done = watch("--quiet", *dashes, PYTHON, "-c", code, *ARGUMENTS, cwd=tmp_path)
    assert json.loads(done.stdout) == ARGUMENTS


def test_two_variables_differ(tmp_path: Path) -> None:
    code = "import os, json; print(json.dumps(dict(os.environ)))"
    bare = json.loads(
        subprocess.run(
            [PYTHON, "-c", code], env=environment(A="1"), cwd=tmp_path, capture_output=True, check=True
        ).stdout
    )
    watched = json.loads(watch("--quiet", PYTHON, "-c", code, cwd=tmp_path, A="1").stdout)
    folder = watched.pop("HANGDOC_PROBE")
    assert Path(watched.pop("PYTHONPATH")).joinpath("hangdoc_probe.py").is_file()
    assert watched == bare
    assert not Path(folder).exists(), "the socket folder goes with the watch"


def test_stdin_and_stdout_are_the_commands(tmp_path: Path) -> None:
    data = os.urandom(300_000)
    done = watch("--quiet", "cat", cwd=tmp_path, stdin=data)
    assert done.stdout == data


def test_inherited_descriptors_signals_and_limits_stay(tmp_path: Path) -> None:
    facts = """
import json, os, resource
signals = {}
for line in open("/proc/self/status"):
    if line.startswith(("SigBlk", "SigIgn", "SigCgt")):
        name, mask = line.split()
        # Two signals belong to glibc, whose posix_spawn leaves them ignored for everybody.
        signals[name] = int(mask, 16) & ~(3 << 31)
fds = sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1]
limits = [resource.getrlimit(number) for number in range(16)]
print(json.dumps([signals, fds, limits, os.getpgrp(), os.getsid(0), os.getcwd(), os.nice(0), os.umask(0)]))
"""
    reader, writer = os.pipe()

    def facts_of(*command: str) -> object:
        done = subprocess.run(
            ["sh", "-c", 'trap "" HUP; umask 027; exec "$@"', "sh", *command, PYTHON, "-c", facts],
            env=environment(),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            pass_fds=[writer],
            timeout=DEADLINE,
            check=True,
        )
        return json.loads(done.stdout)

    try:
        assert facts_of(*HANGDOC, "watch", "--quiet") == facts_of()
    finally:
        os.close(reader)
        os.close(writer)


def test_closed_standard_streams_stay_closed(tmp_path: Path) -> None:
    close_all = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    seen = "exec 9> fds; ls -l /proc/$$/fd >&9; exit 3"
    line = [*close_all, *HANGDOC, "watch", "sh", "-c", seen]
    done = subprocess.run(line, env=environment(), cwd=tmp_path, timeout=DEADLINE, check=False)
    assert done.returncode == 3
    text = (tmp_path / "fds").read_text()
    assert " 9 -> " in text
    assert not any(f" {number} -> " in text for number in (0, 2)), text


def test_scripts_without_an_interpreter_line_run_as_in_a_shell(tmp_path: Path) -> None:
    script = tmp_path / "start"
    script.write_text('echo "$0 $1"\n')
    script.chmod(0o755)
    done = watch("--quiet", "./start", "x", cwd=tmp_path)
    assert done.stdout == b"./start x\n"


def assert_told(done: subprocess.CompletedProcess[bytes], status: int, *words: str) -> None:
    text = done.stderr.decode()
    assert done.returncode == status, text
    assert done.stdout == b""
    assert "Traceback" not in text
    for word in words:
        assert word in text


def test_commands_that_cannot_run(tmp_path: Path) -> None:
    plain = tmp_path / "train.py"
    plain.write_text("print()")
    lost = tmp_path / "lost"
    lost.write_text("#!/no/such/interpreter\n")
    lost.chmod(0o755)
    assert_told(watch("no-such-program", cwd=tmp_path), 127, "not found: no-such-program", "PATH")
    assert_told(watch("", cwd=tmp_path), 127, "(empty)")
    assert_told(watch("./lost", cwd=tmp_path), 127, "interpreter", "#!")
    assert_told(watch("./train.py", cwd=tmp_path), 126, "not executable", "chmod +x")
    assert_told(watch(".", cwd=tmp_path), 126, "directory")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["COMMAND"]),
        (["--"], ["COMMAND"]),
        (["--stal-after", "3", "touch", "ran"], ["--stal-after"]),
        (["--stall-after", "soon", "touch", "ran"], ["--stall-after"]),
        (["--stall-after", "0", "touch", "ran"], ["--stall-after"]),
        (["--stall-after", "nan", "touch", "ran"], ["--stall-after"]),
        (["--on-hang", "panic", "touch", "ran"], ["panic", "report", "abort"]),
        (["--report", "x.docx", "touch", "ran"], ["x.docx", ".json"]),
        (["--run-dir", "/dev/null/x", "touch", "ran"], ["/dev/null", "--run-dir"]),
        (["--run-dir", "x" * 300, "touch", "ran"], ["too long", "--run-dir"]),
    ],
)
def test_our_own_mistakes_are_125_and_nothing_runs(arguments: list[str], words: list[str], tmp_path: Path) -> None:
    assert_told(watch(*arguments, cwd=tmp_path), 125, *words)
    assert list(tmp_path.iterdir()) == []


def test_a_default_run_directory_that_cannot_be_made_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / ".hangdoc").write_text("a file")
    assert watch("echo", "on", cwd=tmp_path).stdout == b"on\n"


def test_without_a_folder_for_sockets_the_job_runs(tmp_path: Path) -> None:
    code = (
        "import tempfile\n"
        "def full(*a, **k): raise OSError(28, 'No space left on device')\n"
        "tempfile.mkdtemp = full\n"
        "from hangdoc.cli import main\n"
        "raise SystemExit(main(['watch', 'sh', '-c', 'echo on; exit 7']))\n"
    )
    done = subprocess.run(
        [PYTHON, "-c", code], env=environment(), cwd=tmp_path, capture_output=True, timeout=DEADLINE, check=False
    )
    assert (done.returncode, done.stdout) == (7, b"on\n")
    told, start = done.stderr.decode().splitlines()
    assert told.startswith("hangdoc: no folder for the ranks' sockets (")
    assert "No space left" in told
    assert "XDG_RUNTIME_DIR" in told
    assert start.startswith("hangdoc: watching pid ")
    assert list(tmp_path.iterdir()) == []


def test_in_a_folder_that_is_gone_the_job_runs(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    script = 'cd "$0" && rmdir "$0" && exec "$@"'
    done = subprocess.run(
        ["sh", "-c", script, str(inside), *HANGDOC, "watch", "sh", "-c", "echo on; exit 7"],
        env=environment(),
        capture_output=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (7, b"on\n"), done.stderr
    # The shell has its own words about it.
    assert done.stderr.count(b"hangdoc: ") == done.stderr.count(b"hangdoc: watching pid ") == 1
    assert b"Traceback" not in done.stderr


def test_with_a_runtime_folder_too_deep_for_sockets_the_job_runs(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    done = watch("sh", "-c", "echo $HANGDOC_PROBE; exit 7", cwd=tmp_path, XDG_RUNTIME_DIR=str(deep))
    assert done.returncode == 7
    assert done.stdout.startswith(b"/tmp/hangdoc-")
    assert list(deep.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_with_a_full_runtime_folder_the_job_runs(tmp_path: Path) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(runtime)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount: {mounted.stderr.decode()}")
    try:
        with (runtime / "full").open("wb", buffering=0) as full, pytest.raises(OSError, match="No space"):
            while True:
                full.write(bytes(1024))
        done = watch("sh", "-c", "echo $HANGDOC_PROBE; exit 7", cwd=tmp_path, XDG_RUNTIME_DIR=str(runtime))
        assert done.returncode == 7
        assert done.stdout.startswith(b"/tmp/hangdoc-")
        assert done.stderr.count(b"\n") == 1
        assert [path.name for path in runtime.iterdir()] == ["full"]
    finally:
        subprocess.run(["umount", str(runtime)], check=True)
