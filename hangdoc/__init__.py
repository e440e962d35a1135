"""hangdoc names the rank that froze a distributed PyTorch job: which line, why, and how to fix it.

The public API; everything else may change. Nothing here imports torch, and nothing is imported before its
first use.
"""

# No import, not even of `typing` or `__future__`: under `python -m hangdoc` it would be looked for in the working
# directory, which `hangdoc.interpreter` is about to take off the path.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from hangdoc.api import attach, diagnose, load, watch
    from hangdoc.model.diagnosis import Diagnosis
    from hangdoc.model.snapshot import JobSnapshot as Snapshot

__version__ = "0.1.0"
__all__ = ["Diagnosis", "Snapshot", "attach", "diagnose", "load", "watch"]


def __getattr__(name: str) -> object:
    if name in ("attach", "diagnose", "load", "watch"):
        from hangdoc import api

        return getattr(api, name)
    if name == "Diagnosis":
        from hangdoc.model.diagnosis import Diagnosis

        return Diagnosis
    if name == "Snapshot":
        from hangdoc.model.snapshot import JobSnapshot

        return JobSnapshot
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
