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
        "the kernel waits for a device or a file system, and lets no signal through",
        "check the mounts and disks of that host (`dmesg`, `df`); the process ends only when the kernel's wait does",
    ),
    ActivityKind.TERMINAL: OutsideWords(
        "HD405",
        "waiting for a person: {text}",
        "the program asks a question, and nobody has answered",
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
        "the others wait until it has compiled",
        "wait for it; to compile less, share a compile cache between the ranks",
    ),
    ActivityKind.WAITING_FOR_WORKER: OutsideWords(
        "HD503",
        "waiting for a DataLoader worker",
        "the batch that a worker should bring does not come",
        "see what the worker waits for; DataLoader(timeout=…) turns such a wait into an error",
    ),
    ActivityKind.REMOTE_CALL: OutsideWords(
        "HD505",
        "{text}",
        "a function that it called on another rank (torch.distributed.rpc) has not returned",
        "look at what that function waits for on the other rank; a timeout of rpc_sync turns the wait into an error",
    ),
    ActivityKind.FILE_LOCK: OutsideWords(
        "HD504",
        "{text}",
        "nobody has let go of that lock",
        "find who holds the lock (`lslocks`, `fuser`), and remove a lock file that nobody holds",
    ),
    ActivityKind.LOCK: OutsideWords(
        "HD505",
        "{text}",
        "no other thread of the process has ended that wait",
        "see which thread was to end that wait; a timeout turns the wait into an error",
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
        "that system call on the pipe has not returned",
        "see who has the other end of the pipe, another process or this one, and what it does",
    ),
    ActivityKind.IO: OutsideWords(
        "HD507",
        "{text}",
        "that system call has not returned",
        "look at the file system or the server at the other end, and give the call a timeout",
    ),
    ActivityKind.WAITING_FOR_CHILD: OutsideWords(
        "HD509",
        "{text}",
        "the child has not ended",
        "look at what the child does, and give the wait a timeout",
    ),
    ActivityKind.SHUTTING_DOWN: OutsideWords(
        "HD701",
        "{text}",
        "Python ends only when that thread has ended",
        "let the program end that thread before it returns",
    ),
}

ENDED_CHILD = OutsideWords(
    "HD509",
    "{text}",
    "the child has ended, and the wait goes on: another process, such as one that the child has started, may hold the "
    "other end of its output",
    "see who still has the child's output open (lsof), give what it starts an output of its own, and give the wait a "
    "timeout",
)

EXIT_HOOK = OutsideWords(
    "HD701",
    "{text}",
    "Python ends only when its exit hooks have returned",
    "give the wait of the exit hook a timeout, or do its work before the program returns",
)

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
    "an exception ended its program, and the process stays alive, so that the launcher does not see the failure",
    "mend the exception, and end what keeps the process alive in `finally`, so that a failed rank exits",
)

LEFT_ALONE = OutsideWords(
    "HD505",
    "{text}",
    "no other thread of the process is left that runs the program's code, so that nobody ends that wait",
    "see on stderr whether an exception ended the thread that was to end that wait, and give the wait a timeout",
)

LOGGER = OutsideWords(
    "HD505",
    "{text}",
    "the logger's queue is full, and no thread takes records from it",
    "start a QueueListener in this process, or give the QueueHandler a queue without a limit",
)

EACH_OTHER = OutsideWords(
    "HD505",
    "{text}",
    "every thread of the process waits for another one, without a timeout",
    "see which of these waits should have ended first; a timeout turns it into an error",
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
    "set the event in `finally`, or make the thread a daemon",
)

SIGNAL = OutsideWords(
    "HD508",
    "{text}",
    "no signal has come, and one that was sent before the process waited for it is lost",
    "use something that stays (a file, a store key), and give the wait a timeout (signal.sigtimedwait)",
)

QUEUE = OutsideWords(
    "HD507",
    "{text}",
    "no process at the other end of the queue has ended that wait",
    "see what the process at the other end of the queue does, and give get() and put() a timeout",
)

TASK = OutsideWords(
    "HD509",
    "{text}",
    "an actor runs one method at a time, and Ray starts a task only where the resources that it asks for are free",
    "see what that actor does now (`ray stack`), and compare what tasks ask for with what is free (`ray status`)",
)

ANSWERED = OutsideWords(
    "HD507",
    "{text}",
    "both ends of the connection wait for data of each other",
    "see which side owes data (send the length of a message first), and give the read a timeout",
)

DESTROY = OutsideWords(
    "HD702",
    "in destroy_process_group",
    "shutting down is a step of all ranks, and the others are not there",
    "let every rank reach destroy_process_group at the same point of the program",
)

BETWEEN_PROCESSES = OutsideWords(
    "HD505",
    "{text}",
    "processes share what it waits for, and no other one has ended that wait",
    "let whoever is to end that wait do so on every way out, an error as well (`finally`), and give it a timeout",
)

LOST_TASK = OutsideWords(
    "HD509",
    "{text}",
    "nobody works on what it waits for. When a worker of multiprocessing.Pool dies, its task is lost, and the pool "
    "silently starts another worker",
    "see whether a worker died, or use concurrent.futures.ProcessPoolExecutor, which raises BrokenProcessPool",
)
