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

UNANSWERABLE = OutsideWords(
    "HD405",
    "waiting for an answer that cannot come",
    "it asks a question, and its standard input is {input}, not a terminal: nobody can type the answer",
    "take input(), prompts and breakpoints out of code that runs without a terminal; pass the answer as an option, or "
    "ask only if sys.stdin.isatty()",
)

FAILED = OutsideWords(
    "HD701",
    "{text}",
    "an exception ended its program; a thread that is not a daemon, or an exit hook, keeps the process alive, so "
    "the launcher does not see the failure and lets the others wait",
    "mend the exception; make the thread a daemon, or end it in `finally`, so that a failed rank exits",
)

LEFT_ALONE = OutsideWords(
    "HD505",
    "{text}",
    "no other thread of the process is left that runs the program's code: the one that was to fill, set or release it "
    "has ended, perhaps by an exception that shows only on stderr, or the waiting thread holds it itself",
    "pass a thread's exception on to whoever waits for it (a sentinel in the queue, the event set in `finally`), and "
    "give waits a timeout",
)

LOGGER = OutsideWords(
    "HD505",
    "{text}",
    "the logger's queue is full, and no thread takes records from it: its QueueListener was not started in this "
    "process, was stopped, or ended by an exception in a handler",
    "give the QueueHandler a queue without a limit, start the QueueListener in every process, and let no exception "
    "leave its handlers",
)

EACH_OTHER = OutsideWords(
    "HD505",
    "{text}",
    "every thread of the process waits for another one, without a timeout: nobody is left who could go on",
    "give waits a timeout, empty a bounded queue (or let its producer see that it is over) before joining the thread "
    "that fills it, and take locks in one order",
)

UNREAD = OutsideWords(
    "HD509",
    "{text}",
    "a process that has put something into a queue ends only when its items are written into the queue's pipe, which "
    "is full; this rank alone could read it, and waits for that end first",
    "get the results before you join the process that puts them",
)

NEVER_STOPPED = OutsideWords(
    "HD701",
    "{text}",
    "only its event would end that loop, and nobody is left who sets it: the main thread is over",
    "set the event in `finally`, or where the program ends, whatever happens; or make the thread a daemon",
)

SIGNAL = OutsideWords(
    "HD508",
    "{text}",
    "the process that was to send the signal has sent none, has sent it to others, or sent it before this one was "
    "ready for it: nobody keeps a signal for a process that is not listed, or not yet there",
    "tell it by something that stays (a file, a store key, a collective), or send the signal when all have said that "
    "they wait, and give the wait a timeout (signal.sigtimedwait)",
)

QUEUE = OutsideWords(
    "HD507",
    "{text}",
    "the process that was to fill it, or to empty it, does not: it waits itself, has ended, or has put fewer items "
    "than are taken out",
    "send every consumer an end mark of its own, watch whether the producer lives, and give get() and put() a timeout",
)

TASK = OutsideWords(
    "HD509",
    "{text}",
    "Ray starts a task only where the resources that it asks for are free, and waits for them without a time limit: "
    "another task or actor may hold them, or no node may have as many; or the task itself waits",
    "compare what tasks and actors ask for with what is free (`ray status`, `ray list tasks`), give up actors that are "
    "done, and give ray.get() a timeout",
)

ANSWERED = OutsideWords(
    "HD507",
    "{text}",
    "the thread at the other end has answered what it was sent, and waits for the next request: the two sides count "
    "their bytes, or their messages, differently",
    "let both sides agree on the length of a message (send it first), and give the read a timeout",
)

DESTROY = OutsideWords(
    "HD702",
    "in destroy_process_group",
    "shutting down is a step of all ranks, and the others are not there yet, or never come",
    "let every rank reach destroy_process_group at the same point of the program",
)

BETWEEN_PROCESSES = OutsideWords(
    "HD505",
    "{text}",
    "processes share what it waits for: another one was to set it, or to come there as well, and has not",
    "let whoever is to end that wait do so on every way out, an error as well (`finally`), and give it a timeout",
)

LOST_TASK = OutsideWords(
    "HD509",
    "{text}",
    "nobody works on what it waits for. That is how it looks after a worker died: its task is lost, and "
    "multiprocessing.Pool silently starts another worker",
    "find out why the worker died (`dmesg` shows kills by the kernel's OOM killer; os._exit and crashes in native code "
    "leave nothing), or use concurrent.futures.ProcessPoolExecutor, which raises BrokenProcessPool",
)
