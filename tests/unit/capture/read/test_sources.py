from __future__ import annotations

import ast
import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from hangdoc.capture.read import sources
from hangdoc.capture.read.parsed_files import ParsedFiles
from hangdoc.capture.read.ran_code import ran_code
from hangdoc.capture.read.scrubbing import scrub
from hangdoc.capture.read.source_files import Witness
from hangdoc.capture.read.sources import collect
from hangdoc.capture.safe.open_files import User, user_of
from hangdoc.model.process import Frame
from hangdoc.model.ran import RanCode
from hangdoc.model.snapshot import SourceText, Unavailable

PROGRAM = '''\
"""About this program."""
import os

class Trainer:
    @property
    def path(self):
        return "/home/me/secret"

    def fit(self, n):  # the loop
        for i in range(n):
            step = lambda: print("x")
            step()

async def later():
    def inner():
        pass
    inner()

if __name__ == "__main__":
    if os.environ["RANK"] == "0":
        Trainer().fit(3)
'''


def me() -> Witness:
    return Witness(os.getpid(), time.time() + 60, user_of(os.getpid()))


def write(folder: Path, text: str = PROGRAM) -> str:
    file = folder / "train.py"
    file.write_text(text)
    return str(file)


def get(*frames: Frame, witness: Witness | None = None) -> tuple[tuple[SourceText, ...], tuple[Unavailable, ...]]:
    return collect([frames], [witness or me()])


@pytest.mark.parametrize(
    ("function", "line", "name", "first"),
    [
        ("Trainer.fit", 12, "fit", 9),
        ("Trainer.fit.<locals>.<lambda>", 11, "fit", 9),
        ("path", 7, "path", 5),
        ("later.<locals>.inner", 16, "inner", 15),
        ("later", 17, "later", 14),
        ("<module>", 20, "<module>", 1),
        ("Trainer", 5, "path", 5),
    ],
)
def test_the_function_around_a_line(tmp_path: Path, function: str, line: int, name: str, first: int) -> None:
    (text,), missing = get(Frame(write(tmp_path), line, function))
    assert (text.function, text.first_line) == (name, first)
    shown = text.text.split("\n")
    assert shown[0].strip() == scrub(PROGRAM).split("\n")[first - 1].strip()
    assert first + len(shown) > line
    assert missing == ()


def test_one_text_per_function(tmp_path: Path) -> None:
    file = write(tmp_path)
    texts, _ = get(*[Frame(file, line, "fit") for line in (10, 11, 12)], Frame(file, 20, "<module>"))
    assert [text.function for text in texts] == ["<module>", "fit"]


def test_library_files_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "lib" / "python3.11"
    folder.mkdir(parents=True)
    assert get(Frame(write(folder), 12, "fit"), Frame(os.__file__, 5, "x")) == ((), ())


def test_edited_since_the_start(tmp_path: Path) -> None:
    file = write(tmp_path)
    texts, (missing,) = get(Frame(file, 12, "fit"), witness=replace(me(), started=time.time() - 100))
    assert texts == ()
    assert missing.what == "source"
    assert "edited since the job started" in missing.why


_HELPER = """
def kept(value):
    if value > 2:
        return len("a")
    return None
"""


@pytest.mark.parametrize("keeps", ["", "1"], ids=["keeps what it compiled", "keeps nothing"])
@pytest.mark.parametrize(
    ("edit", "again", "expected"),
    [
        ("", False, True),
        ("value > 2 and True", False, False),
        ("value > 2 and True", True, False),
        ("value > 3", True, False),
        ("value < 2", True, False),
    ],
    ids=["imported after it was written", "edited since", "and imported by another", "a number", "a comparison"],
)
def test_written_by_the_job(tmp_path: Path, edit: str, again: bool, expected: bool, keeps: str) -> None:
    file = tmp_path / "helping.py"
    file.write_text(_HELPER)
    program = tmp_path / "program.py"
    program.write_text("import helping, time\nhelping.kept(3)\nprint('ready', flush=True)\ntime.sleep(60)\n")
    command = [sys.executable, str(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONDONTWRITEBYTECODE": keeps}) as job:
        assert job.stdout is not None
        job.stdout.readline()
        _, compiled = ran_code(job.pid, [str(program)], 20)
        if edit:
            file.write_text(_HELPER.replace("value > 2", edit))
        if again:
            py_compile.compile(str(file))
        witness = Witness(job.pid, time.time() - 100, user_of(job.pid), compiled)
        texts, missing = get(Frame(str(file), 4, "kept"), witness=witness)
        job.kill()
    if not compiled.layouts:
        pytest.skip("the memory of this interpreter cannot be read")
    assert str(file) in compiled.files
    assert [text.function for text in texts] == (["kept"] if expected else [])
    assert bool(missing) != expected


def test_deleted(tmp_path: Path) -> None:
    texts, (missing,) = get(Frame(str(tmp_path / "gone.py"), 12, "fit"))
    assert texts == ()
    assert "gone.py" in missing.why


def test_shorter_than_the_line(tmp_path: Path) -> None:
    texts, (missing,) = get(Frame(write(tmp_path), 500, "fit"))
    assert texts == ()
    assert ":500" in missing.why


def test_relative_to_the_ranks_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    (text,), _ = get(Frame("train.py", 12, "fit"))
    assert text.file == "train.py"


def test_in_a_zip_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.writestr("pkg/mod.py", PROGRAM)
    (text,), _ = get(Frame(f"{tmp_path}/app.zip/pkg/mod.py", 12, "fit"))
    assert text.function == "fit"
    texts, missing = get(Frame(f"{tmp_path}/app.zip/pkg/other.py", 12, "fit"))
    assert texts == ()
    assert len(missing) == 1


@pytest.mark.parametrize("text", ["def f(:\n", "\0", "print('", "x = 1\n\tif"])
def test_not_python(tmp_path: Path, text: str) -> None:
    texts, (missing,) = get(Frame(write(tmp_path, text), 1, "f"))
    assert texts == ()
    assert "cannot parse" in missing.why


def test_a_fifo_or_a_device_is_no_source(tmp_path: Path) -> None:
    fifo = tmp_path / "train.py"
    os.mkfifo(fifo)
    for file in (str(fifo), "/dev/zero"):
        texts, missing = get(Frame(file, 1, "f"))
        assert texts == ()
        assert len(missing) == 1


def test_a_device_is_not_even_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    original = os.open

    def noted(path: str, flags: int, *rest: int, **more: int) -> int:
        opened.append((path, flags))
        return original(path, flags, *rest, **more)

    (tmp_path / "link.py").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "fifo.py")
    monkeypatch.setattr(os, "open", noted)
    texts, missing = get(*(Frame(file, 1, "f") for file in ("/dev/zero", f"{tmp_path}/link.py", f"{tmp_path}/fifo.py")))
    assert (texts, len(missing)) == ((), 3)
    asked = [flags for path, flags in opened if str(path).endswith(("zero", "link.py", "fifo.py"))]
    assert asked
    assert all(flags & os.O_PATH for flags in asked)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may take on another user's identity")
def test_root_sees_what_the_jobs_user_may_see(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and str(folder).startswith("/tmp/pytest"):
            folder.chmod(0o755)
    public, private, shared = (tmp_path / name for name in ("public.py", "private.py", "shared.py"))
    for path in (public, private, shared):
        path.write_text("def f():\n    wait()\n")
    private.chmod(0o600)
    os.chown(shared, 0, 54321)
    shared.chmod(0o640)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "inside.py").write_text("def f():\n    wait()\n")
    (tmp_path / "link.py").symlink_to(private)

    def seen_by(user: User | None) -> set[str]:
        paths = (public, private, shared, closed / "inside.py", tmp_path / "link.py")
        texts, _ = get(*(Frame(str(path), 2, "f") for path in paths), witness=replace(me(), user=user))
        return {Path(text.file).name for text in texts}

    assert seen_by(User(12345, 12345)) == {"public.py"}
    assert seen_by(User(12345, 12345, (54321,))) == {"public.py", "shared.py"}
    assert seen_by(User(12345, 54321)) == {"public.py", "shared.py"}
    assert seen_by(None) == set()
    assert seen_by(user_of(os.getpid())) == {"public.py", "private.py", "shared.py", "inside.py", "link.py"}
    assert os.geteuid() == 0
    assert private.read_text()  # this thread is root as before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start another user's process")
def test_a_forged_file_name_shows_root_nothing_that_is_not_the_jobs() -> None:
    """A job of another user's says that its code is in a file that only root may read."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    secret, own = folder / "secret.py", folder / "own.py"
    for path in (secret, own):
        path.write_text("def f():\n    wait()\n")
    secret.chmod(0o600)
    os.chown(own, 12345, 12345)
    own.chmod(0o600)
    process = subprocess.Popen(["sleep", "60"], cwd=folder, user=12345, group=12345, extra_groups=[23456])
    try:
        user = user_of(process.pid)
        assert user == User(12345, 12345, (23456,))
        witness = Witness(process.pid, time.time() + 60, user)
        names = (str(secret), str(own), "secret.py", "own.py", "/etc/shadow", "/dev/zero")
        texts, missing = get(*(Frame(name, 2, "f") for name in names), witness=witness)
        assert {text.file for text in texts} == {str(own), "own.py"}
        assert len(missing) == 4
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


def test_typed_in() -> None:
    texts, (missing,) = get(Frame("<stdin>", 1, "f"))
    assert texts == ()
    assert "no file" in missing.why


def test_a_huge_module_is_cut_to_the_statement(tmp_path: Path) -> None:
    body = "x = 1\n" * 5000 + "if x:\n    x = 2\n"
    (text,), _ = get(Frame(write(tmp_path, body), 5002, "<module>"))
    assert (text.first_line, text.text) == (5001, "if x:\n    x = 2")


@pytest.mark.parametrize(
    ("text", "scrubbed"),
    [
        ('x = "secret"  # note', 'x = "…"  '),
        ("x = 'a' 'b'", "x = '…' '…'"),
        ("x = b'secret'", "x = b'...'"),
        ("x = rb'secret'", "x = rb'...'"),
        ("x = ''", "x = ''"),
        ('"""one\ntwo\n"""\ny = 1', '"""…\n\n"""\ny = 1'),
        ("x = 'a\\\nb'\ny = 1", "x = '''…\n'''\ny = 1"),
        ('if __name__ == "__main__":\n    pass', 'if __name__ == "__main__":\n    pass'),
        ('if os.environ["RANK"] == "0": pass', 'if os.environ["RANK"] == "0": pass'),
        ("f'{user} {token!r:>10}'", "f'{user}…{token}'"),
        ('key = f"{stage}/done-{self.rank:03d}"', 'key = f"{stage}…{self.rank}"'),
        ("f'{abs(hash(text)) % 16**8:08x}'", "f'{abs(hash(text)) % 16 ** 8}'"),
        ("f'{n + 31415926}/{a or \"b\"}'", "f'…'"),
        ("token = f'{a}{b}'", "token = f'…'"),
        ('if mode == "warm_up": x = "warm_up"', 'if mode == "warm_up": x = "…"'),
        ('if os.environ.get("SLURM_RESTART_COUNT", "none"):', 'if os.environ.get("SLURM_RESTART_COUNT", "…"):'),
        ('if config["phase"] in ("a", "late-phase"): f(["b"])', 'if config["phase"] in ("a", "late-phase"): f(["…"])'),
        ('if x != "0aF8q9Zk" and x != "qwertyuiopasdfgh":', 'if x != "…" and x != "…":'),
        ('if password == "swordfish" or {"token": "abc"}:', 'if password == "…" or {"…": "…"}:'),
        ('f"""a {\nb} c"""\ny', 'f"""…{b}…\n"""\ny'),
        ("f'{d[\"k\"]}'", "f'…'"),
        ("x = 1\r\n", "x = 1\r\n"),
        ("", ""),
    ],
)
def test_scrub(text: str, scrubbed: str) -> None:
    assert scrub(text) == scrubbed


def test_scrubbed_code_still_parses_with_the_same_lines() -> None:
    text = Path(sources.__file__).read_text(encoding="utf-8")
    shown = scrub(text)
    assert len(shown.split("\n")) == len(text.split("\n"))
    before = [(type(node), node.lineno) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    after = [(type(node), node.lineno) for node in ast.walk(ast.parse(shown)) if isinstance(node, ast.stmt)]
    assert before == after


def test_strings_stay_on_request(tmp_path: Path) -> None:
    (text,), _ = collect([(Frame(write(tmp_path), 7, "path"),)], [me()], keep_strings=True)
    assert "/home/me/secret" in text.text


LIBRARY = """
class Engine:
    def stop(self):
        self.halted = True

    def run(self, step):
        while not self.done:
            step()

    @property
    def done(self):
        return self.halted
"""


def test_libraries_between_the_users_frames_and_who_stops_their_loops(tmp_path: Path) -> None:
    library = tmp_path / "site-packages" / "engine" / "core.py"
    library.parent.mkdir(parents=True)
    library.write_text(LIBRARY)
    (tmp_path / "hooks.py").write_text(
        "def watch(engine, loss):\n    if loss < 1:\n        engine.stop()\n\n\ndef idle(): ...\n"
    )
    main = tmp_path / "main.py"
    main.write_text(
        "import hooks\nfrom engine.core import Engine\n\n\ndef step():\n    reduce()\n\n\nEngine().run(step)\n"
    )
    stack = (Frame(str(main), 6, "step"), Frame(str(library), 8, "Engine.run"), Frame(str(main), 9, "<module>"))
    texts, missing = collect([stack], [me()])
    found = {(Path(text.file).name, text.function, text.first_line) for text in texts}
    users = {("main.py", "step", 5), ("main.py", "<module>", 1), ("hooks.py", "watch", 1)}
    assert found == users | {("core.py", "run", 6), ("core.py", "stop", 3), ("core.py", "done", 10)}
    assert missing == ()
    library.unlink()
    assert collect([stack], [me()])[1] == ()


def test_functions_that_a_condition_asks_in_a_file_on_no_stack(tmp_path: Path) -> None:
    (tmp_path / "guards.py").write_text(
        "class Guard:\n    def spiked(self, loss):\n        return loss > self.limit\n\n"
        "    @property\n    def armed(self):\n        return self.limit > 0\n\n    def reset(self): ...\n"
    )
    main = tmp_path / "main.py"
    main.write_text(
        "from guards import Guard\n\n\ndef step(guard, loss):\n"
        "    if guard.armed and not guard.spiked(loss):\n        reduce()\n    guard.reset()\n"
    )
    texts, _ = collect([(Frame(str(main), 6, "step"),)], [me()])
    found = {(Path(text.file).name, text.function) for text in texts}
    assert found == {("main.py", "step"), ("guards.py", "spiked"), ("guards.py", "armed")}


def test_functions_that_raise_what_a_handler_catches(tmp_path: Path) -> None:
    (tmp_path / "study.py").write_text(
        "class Pruned(Exception): ...\n\n\ndef prune(loss):\n    raise Pruned\n\n\n"
        "def parse(text):\n    raise ValueError(text)\n\n\n"
        "def elsewhere(text):\n    raise ValueError(text)\n"
    )
    main = tmp_path / "main.py"
    main.write_text(
        "import study\n\n\ndef step(trial, text):\n    try:\n        trial(study.parse(text))\n"
        "    except (study.Pruned, ValueError):\n        reduce()\n"
    )
    texts, _ = collect([(Frame(str(main), 8, "step"),)], [me()])
    found = {(Path(text.file).name, text.function) for text in texts}
    assert found == {("main.py", "step"), ("study.py", "prune"), ("study.py", "parse")}


def test_who_asks_a_trainer_for_what_it_does(tmp_path: Path) -> None:
    library = tmp_path / "site-packages" / "engine" / "core.py"
    library.parent.mkdir(parents=True)
    library.write_text("def run(self):\n    if self.control.should_save:\n        self.save()\n    self.step()\n")
    main = tmp_path / "main.py"
    main.write_text(
        "def late(control, loss):\n    control.should_save = True\n\n\n"
        "def early(control):\n    control.should_save = False\n\n\ndef fit(trainer):\n    trainer.run()\n"
    )
    for line, wanted in ((3, {"fit", "late"}), (4, {"fit"})):
        texts, _ = collect([(Frame(str(library), line, "run"), Frame(str(main), 10, "fit"))], [me()])
        assert {text.function for text in texts if text.file == str(main)} == wanted


def test_the_whole_of_a_small_file_of_which_a_function_is_on_a_stack(tmp_path: Path) -> None:
    """A spawned process has no frame of its module, and what would end its wait is on no stack."""
    file = write(tmp_path)
    found = sources.Sources([(Frame(file, 12, "Trainer.fit"),)], ParsedFiles([me()]))
    assert [text.function for text in found.of_users()[0]] == ["fit"]
    assert [(text.function, text.first_line) for text in found.of_whole_files()] == [("<module>", 1)]
    long = tmp_path / "long.py"
    long.write_text("def run():\n    go()\n" + "x = 1\n" * 4000)
    found = sources.Sources([(Frame(str(long), 2, "run"),)], ParsedFiles([me()]))
    found.of_users()
    assert found.of_whole_files() == ()


def test_functions_that_are_asked_or_tell_of_the_past_are_kept_though_no_stack_has_them(tmp_path: Path) -> None:
    """What conditions ask, and what that asks; what made groups, started threads, raised or set an attribute."""
    text = """\
def run(self):
    for item in self.plan():
        dist.all_reduce(item)

def plan(self):
    found = self.made()
    return found

def made(self):
    return []

def join(self):
    if self.late:
        self.group = dist.new_group()

def check(self):
    if self.late:
        raise ValueError

def pure(x):
    return x + 1
"""
    texts, _ = get(Frame(write(tmp_path, text), 3, "run"))
    assert {each.function for each in texts} == {"run", "plan", "made", "join", "check"}


def test_functions_that_have_run_in_part_are_kept_though_no_stack_has_them(tmp_path: Path) -> None:
    file = write(tmp_path)
    found = sources.Sources([], ParsedFiles([me()]))
    codes = [
        RanCode(file, "path", 5, called=True),
        RanCode(file, "<lambda>", 11, called=True),
        RanCode(file, "Trainer", 4, called=True),
        RanCode(file, "gone", 900, called=True),
        RanCode(str(tmp_path / "missing.py"), "f", 1, called=True),
    ]
    assert [(text.function, text.first_line) for text in found.of_code(codes)] == [("path", 5), ("fit", 9)]


@pytest.mark.parametrize("terms", [100, 500, 900])
def test_an_expression_too_deep_to_be_written_again_is_hidden(terms: int) -> None:
    text = f'x = f"sk-secret {{{"+".join(["b"] * terms)}}}"\ny = 1\n'
    assert scrub(text).split("\n")[:2] == ['x = f"…"', "y = 1"]
