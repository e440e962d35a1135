"""The sentences for a rank that works, or is blocked on something that is no rank, by what it does."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.model.kinds import ActivityKind


@dataclass(frozen=True, slots=True)
class OutsideWords:
    """The sentences for one kind of activity. ``doing`` follows 'is' or 'are'; '{text}' is the activity's own words."""

    code: str
    doing: str
    why: str
    fix: str


OUTSIDE = {
    ActivityKind.UNINTERRUPTIBLE: OutsideWords(
        "HD404",
        "stuck in the kernel: {text}",
        "the kernel waits for a device or a file system and lets no signal through: a dead network mount, a failing "
        "disk or a driver",
        "check the mounts and disks of that host (`dmesg`, `df`); the process ends only when the kernel's wait does",
    ),
    ActivityKind.TERMINAL: OutsideWords(
        "HD405",
        "waiting for a person: {text}",
        "the program asks a question and nobody answers; under a launcher nobody can",
        "answer it, or take input() and prompts out of code that runs under a launcher (pass a flag instead)",
    ),
    ActivityKind.DEBUGGER: OutsideWords(
        "HD405",
        "waiting for a person: {text}",
        "a breakpoint was reached, and the other ranks do not stop at it",
        "continue or leave the debugger; remove breakpoint() and set_trace() from the code",
    ),
    ActivityKind.COMPILING: OutsideWords(
        "HD502",
        "still compiling ({text})",
        "compilation takes as long as it takes, and it runs on this rank while the others have finished or skipped it",
        "wait for it; warm the compile cache on one rank first, or compile on all ranks at the same point",
    ),
    ActivityKind.WAITING_FOR_WORKER: OutsideWords(
        "HD503",
        "waiting for a DataLoader worker",
        "the batch that a worker should bring does not come",
        "set DataLoader(timeout=…), give the worker's network and file access a timeout, and start workers with "
        "multiprocessing_context='spawn' if it died in a lock copied by fork",
    ),
    ActivityKind.REMOTE_CALL: OutsideWords(
        "HD505",
        "{text}",
        "a function that it called on another rank (torch.distributed.rpc) has not returned: the thread that runs it "
        "there waits, or never got to it",
        "look at what the called function waits for on the other rank; give rpc_sync a timeout, and let no function "
        "that is called wait for calls of ranks that may have ended",
    ),
    ActivityKind.FILE_LOCK: OutsideWords(
        "HD504",
        "{text}",
        "a lock file is taken and its holder does not let go, or is long dead",
        "let the holder go before it waits for others: no barrier or other collective inside the lock; remove the lock "
        "file if nobody holds it",
    ),
    ActivityKind.LOCK: OutsideWords(
        "HD505",
        "{text}",
        "another thread of the process holds, or was to set, what this one waits for",
        "take locks in one order, never hold one over a collective, and give waits a timeout",
    ),
    ActivityKind.GIL_HELD: OutsideWords(
        "HD506",
        "{text}",
        "no other Python thread of the process can run while the call lasts",
        "release the GIL in the extension (Py_BEGIN_ALLOW_THREADS), or give the call a timeout",
    ),
    ActivityKind.PIPE: OutsideWords(
        "HD507",
        "{text}",
        "the other end of the pipe does not read, write or open it",
        "make sure that somebody drains or fills the pipe, and close ends that are not used",
    ),
    ActivityKind.IO: OutsideWords(
        "HD507",
        "{text}",
        "a read, write or connect that does not return: a dead mount, a silent server, a full buffer",
        "give it a timeout, and check the file system or server at the other end",
    ),
    ActivityKind.WAITING_FOR_CHILD: OutsideWords(
        "HD509",
        "{text}",
        "the child has not ended",
        "look at the child: its own state is the cause; give the wait a timeout and drain its pipes",
    ),
    ActivityKind.SHUTTING_DOWN: OutsideWords(
        "HD701",
        "{text}",
        "a thread that is not a daemon, or an exit hook, still runs",
        "end the thread before the main thread returns, or make it a daemon",
    ),
}
