"""hangdoc names the rank that froze a distributed PyTorch job: which line, why, and how to fix it.

The public API; everything else may change:

    hangdoc.diagnose(".hangdoc/latest")     the verdict on something saved: a Diagnosis
    hangdoc.attach(4711)                    the verdict on a job that is frozen now
    hangdoc.jobs()                          the jobs of this machine
    hangdoc.load(PATH), snapshot(PID)       the job itself, as a Snapshot, for diagnose()
    hangdoc.watch(COMMAND, WatchOptions())  run a job under watch

`hangdoc guide python` has the types. Nothing here imports torch, and nothing is imported before its first use.
"""

# No import, not even of `typing` or `__future__`: under `python -m hangdoc` it would be looked for in the working
# directory, which `hangdoc.interpreter` is about to take off the path.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from hangdoc.api import attach, diagnose, jobs, load, snapshot, watch
    from hangdoc.model.diagnosis import Diagnosis
    from hangdoc.model.snapshot import JobSnapshot as Snapshot
    from hangdoc.model.summary import JobSummary
    from hangdoc.sidecar.options import WatchOptions

__version__ = "0.1.0"
__all__ = [
    "Diagnosis",
    "JobSummary",
    "Snapshot",
    "WatchOptions",
    "attach",
    "diagnose",
    "jobs",
    "load",
    "snapshot",
    "watch",
]


def __getattr__(name: str) -> object:
    if name in ("attach", "diagnose", "jobs", "load", "snapshot", "watch"):
        from hangdoc import api

        return getattr(api, name)
    if name == "Diagnosis":
        from hangdoc.model.diagnosis import Diagnosis

        return Diagnosis
    if name == "Snapshot":
        from hangdoc.model.snapshot import JobSnapshot

        return JobSnapshot
    if name == "JobSummary":
        from hangdoc.model.summary import JobSummary

        return JobSummary
    if name == "WatchOptions":
        from hangdoc.sidecar.options import WatchOptions

        return WatchOptions
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
