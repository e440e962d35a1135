"""The lines of pasted stacks, each by itself: what begins a process, a thread, and what is a frame, in the text of
py-spy (0.3 and 0.4), faulthandler (Python 3.8 to 3.14), gdb and pystack (1.x).

No pattern here looks further than its line, and none goes back over what it has read: a line may be 16 KB of anything.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from hangdoc.capture.safe.text import clean
from hangdoc.model.process import Frame

PY_SPY, FAULTHANDLER, GDB, PYSTACK = "py-spy", "faulthandler", "gdb", "pystack"

_LONGEST_NAME = 300
_LONGEST_NUMBER = 9

_PROCESS = re.compile(r"Process (\d{1,9}): ")
_VERSION = re.compile(r"Python v(\d)\.(\d{1,2})(?!\d)")
_PY_SPY = re.compile(r'Thread (0x[0-9A-Fa-f]{1,16}|\d{1,9}) \((idle|active|active\+gil|idle\+gil)\)(?:: "(.*)")?$')
_FAULTHANDLER = re.compile(
    r"(?:(?:Current t|T)hread 0x(?P<id>[0-9a-f]{1,16})(?: \[(?P<name>[^\]]{0,64})\])?|Stack)"
    r" \(most recent call first\):$"
)
_GDB = re.compile(r"Thread (\d{1,6}) \((?:Thread 0x[0-9a-f]{1,16} )?\(?(?:LWP|process) (\d{1,9})\)?")
_GDB_NAME = re.compile(r' "([^"]{0,64})"')
_PYSTACK = re.compile(r"Traceback for thread (\d{1,9})(?: \(([^()]{0,64})\))? .*\(most recent call last\):$")
_BEGINS = re.compile(r"Timeout \(\d[\d:.]*\)!$|Fatal Python error: ")
"""With what faulthandler begins to print, whatever it printed before."""

_FAULTHANDLER_FRAME = re.compile(r'\s*File "([^"]*)", line (\d{1,9}) in (.+)')
_PY_BT_FRAME = re.compile(r'\s*File "([^"]*)", line (\d{1,9}), in (.+)')
_PYSTACK_FRAME = re.compile(r'\s*\((Python|C)\) File "([^"]*)", line (\d{1,9}), in (.+)')
_GDB_FRAME = re.compile(r"#(?:\d  |\d\d |\d{3,6} )(?:0x[0-9a-f]{1,16} in )?(?=\S)")
_GDB_PLACE = re.compile(r"(.+):(\d{1,9})")
_LOCAL = re.compile(r"\s{8,}(\w{1,80}): (.+)")
_LOCALS = ("        Arguments:", "        Locals:")

_C_FILE = re.compile(r"\.(?:c|cc|cpp|cxx|cu|cuh|h|hh|hpp|S)$|\.so(?:\.|$)")

_INSTALLED = frozenset(
    """
    accelerate aiohttp apex bitsandbytes datasets debugpy deepspeed filelock flash_attn fsspec functorch grpc horovod
    huggingface_hub ignite lightning lightning_fabric lightning_utilities monai multiprocess numpy pandas peft psutil
    pyarrow pytorch_lightning ray requests safetensors scipy tensorboard tokenizers torch torchaudio torchdata torchgen
    torchmetrics torchsnapshot torchvision tqdm transformer_engine transformers triton trl urllib3 uvicorn uvloop wandb
    webdataset xformers zmq
    """.split()  # noqa: SIM905 - as a list, a page of names
)
"""Packages that are installed, hardly ever written by who looks at a stack. Of trainers and servers that people work
on in place (Megatron-LM, vLLM, SGLang), a short name does not tell."""


@dataclass(frozen=True, slots=True)
class ThreadLine:
    """The line with which a thread's frames begin. ``main``: the tool says that it is the main thread. ``gil``: it
    holds the interpreter's lock, None where the tool does not say."""

    kind: str
    tid: int
    name: str = ""
    idle: bool | None = None
    main: bool = False
    gil: bool | None = None


@dataclass(frozen=True, slots=True)
class FrameLine:
    """One frame, with the file as it is printed. ``native``: it is C's."""

    frame: Frame
    native: bool = False


def process_line(text: str) -> int | None:
    """The pid of py-spy's 'Process 39: python train.py'."""
    found = _PROCESS.match(text)
    return int(found[1]) if found is not None else None


def version_line(text: str) -> str | None:
    """'3.11' of py-spy's 'Python v3.11.9 (/usr/bin/python3.11)'."""
    found = _VERSION.match(text)
    return f"{found[1]}.{found[2]}" if found is not None else None


def begins_dump(text: str) -> bool:
    """True for the line with which faulthandler begins."""
    return _BEGINS.match(text) is not None


def thread_line(text: str) -> ThreadLine | None:
    """The thread that begins in this line, of whichever tool; None where none does."""
    if text.startswith("Thread ") and (found := _PY_SPY.match(text)):
        hexadecimal = found[1].startswith("0x")  # the address of the thread: its number was not seen
        name = clean(found[3] or "", 80)
        tid = 0 if hexadecimal else int(found[1])
        return ThreadLine(PY_SPY, tid, name, found[2].startswith("idle"), name == "MainThread", "gil" in found[2])
    if text.endswith("(most recent call first):") and (found := _FAULTHANDLER.match(text)):
        return ThreadLine(FAULTHANDLER, int(found["id"] or "0", 16), clean(found["name"] or ""))
    if text.startswith("Thread ") and (found := _GDB.match(text)):
        named = _GDB_NAME.search(text, found.end())
        return ThreadLine(GDB, int(found[2]), clean(named[1]) if named else "", main=found[1] == "1")
    if text.startswith("Traceback for thread ") and (found := _PYSTACK.match(text)):
        return ThreadLine(PYSTACK, int(found[1]), clean(found[2] or ""))
    return None


def frame_line(kind: str, text: str) -> FrameLine | None:
    """The frame in a line of a thread that this tool has printed; None where there is none."""
    if kind == PY_SPY:
        return _of_py_spy(text)
    if kind == FAULTHANDLER:
        found = _FAULTHANDLER_FRAME.match(text)
        return _python(*found.groups()) if found is not None else None
    if kind == GDB:
        found = _PY_BT_FRAME.match(text)
        return _python(*found.groups()) if found is not None else _of_gdb(text)
    found = _PYSTACK_FRAME.match(text)
    if found is None:
        return None
    if found[1] == "Python":
        return _python(found[2], found[3], found[4])
    function = found[4].rpartition(" (")[0] or found[4]
    return _native(function.removesuffix(" (inlined)"), found[2], int(found[3]))


def local_line(text: str) -> tuple[str, str] | None:
    """(name, value as printed) of a local variable below a frame of ``py-spy dump --locals``."""
    found = _LOCAL.match(text)
    return (found[1], found[2]) if found is not None else None


def is_locals_heading(text: str) -> bool:
    """True for what stands above the locals of a frame."""
    return text in _LOCALS


def first_gdb_frame(text: str) -> bool:
    """True for the frame with which gdb's `bt` begins. Torch's own stacks have one space after '#0'."""
    return text.startswith("#0  ") and _of_gdb(text) is not None


def full_name(file: str, version: str, own: frozenset[str]) -> str:
    """``file`` as py-spy shortens it (from the outermost package on), so that a library's is known to be one. ``own``:
    such names that are the user's whatever they look like. Others stay as they are.

    Examples: 'torch/nn/module.py' → 'site-packages/torch/nn/module.py'; 'queue.py' → 'lib/python3.11/queue.py'.
    """
    if file in own or file.startswith(("/", "<")) or not file.endswith(".py"):
        return file
    package = file.partition("/")[0].removesuffix(".py")
    if package in _INSTALLED:
        return f"site-packages/{file}"
    return f"lib/python{version}/{file}" if package in sys.stdlib_module_names else file


def _python(file: str, line: str, function: str) -> FrameLine:
    return FrameLine(Frame(clean(file), int(line), clean(function.strip(), _LONGEST_NAME)))


def _native(function: str, file: str, line: int = 0) -> FrameLine:
    return FrameLine(Frame(clean(file), line, clean(function.strip(), _LONGEST_NAME)), native=True)


def _of_py_spy(text: str) -> FrameLine | None:
    """'    fit (train.py:12)', '    poll (libc.so.6)'."""
    if not text.startswith("    ") or text.startswith("        ") or not text.endswith(")"):
        return None
    function, found, place = text.strip()[:-1].rpartition(" (")
    if not found or not function or not place:
        return None
    file, colon, number = place.rpartition(":")
    if not colon or not number.isdecimal() or len(number) > _LONGEST_NUMBER or not number.isascii():
        file, number = place, "0"
    # A library, or the interpreter itself: '(libc.so.6)', '(python3.12)'.
    native = _C_FILE.search(file) is not None or (number == "0" and not file.endswith(".py") and file[0] != "<")
    return _native(function, file, int(number)) if native else _python(file, number, function)


def _of_gdb(text: str) -> FrameLine | None:
    """'#6  0x00007f in ncclAllReduce () from /lib/libnccl.so.2', '#1  clone3 () at clone3.S:81'."""
    begun = _GDB_FRAME.match(text)
    if begun is None:
        return None
    rest, file, line = text[begun.end() :], "", 0
    for word in (" from ", " at "):
        before, found, place = rest.rpartition(word)
        if found and before.endswith(")") and " " not in place:
            rest, file = before, place
            if numbered := _GDB_PLACE.fullmatch(place):
                file, line = numbered[1], int(numbered[2])
            break
    return _native(rest[: _arguments_at(rest)], file, line)


def _arguments_at(text: str) -> int:
    """Where ' (' begins the arguments: not within the <…> of a template."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">" and depth > 0)
        if letter == " " and not depth and text[at + 1 : at + 2] == "(":
            return at
    return len(text)
