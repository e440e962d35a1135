"""HD602 on devices: every rank has issued the call, and a device does not come to it, or through it."""

from __future__ import annotations

from hangdoc.diagnosis.blame.on_the_gpu import DeviceStuck, Stands
from hangdoc.diagnosis.bounds import LISTED
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import at, call_name, waiting_at, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import AllArrived, Blame
from hangdoc.model.device_waits import waits_for_device
from hangdoc.model.message import Does, Message, Ranks, Verb, joined, sentence

_TO_TELL = "run the job with TORCH_NCCL_ENABLE_TIMING=1: its dumps then show which ranks' kernels have begun"
_DEVICE = "look at the device, its driver and its links (`nvidia-smi`, `dmesg`), and at NCCL's log (NCCL_DEBUG=INFO)"


@cause("HD602", explains=DeviceStuck, order=305)
def device_stuck(case: Case, blame: Blame[DeviceStuck]) -> Finding:
    """HD602: a kernel before the call does not end on the culprits' devices, or the call's own kernel does not end."""
    found, culprits = blame.found, blame.culprits
    what: Message = _call(case, found)
    if culprits:
        return Finding("HD602", _verdict(case, found), _why(found, culprits), joined(_DEVICE, _before(culprits)))
    if found.running and not (found.untimed or found.waiting):
        run: Message = ["all kernels (", Ranks(found.running), ") run in ", what]
        if found.completed:
            run = [Does(found.running, "runs", "run"), " ", what, ", which ", Ranks(found.completed)]
            run = [run, " ", Verb(found.completed, "has", "have"), " completed"]
        return Finding(
            "HD602",
            sentence([run, ", and the call does not complete"]),
            "every rank of the call has come to it with equal arguments"
            if found.completed
            else "every rank of the call is in it with equal arguments",
            _DEVICE,
        )
    open_ = "" if found.running or found.completed else "no kernel of the call has begun"
    return Finding(
        "HD602",
        sentence(
            [Does(found.members, "has", "have"), " issued ", what, ", and the call does not complete"],
        ),
        joined(
            "either the GPU of one of them has not reached the call, because an earlier kernel or copy does not end",
            "or all have, and the call itself does not end (network, device)",
            "these dumps do not show which" if found.untimed else open_,
        ),
        joined(_TO_TELL, _DEVICE) if found.untimed else _DEVICE,
    )


def _verdict(case: Case, found: DeviceStuck) -> Message:
    """Of each call one clause; of calls that are alike in all groups one for all."""
    calls: dict[tuple[object, ...], list[DeviceStuck]] = {}
    for each in (found, *found.alike):
        call = each.call
        calls.setdefault((each.label, *((call.op, call.sequence, call.site) if call else ())), []).append(each)
    told = [clause for some in list(calls.values())[:LISTED] for clause in _clauses(case, some, found.is_timed)]
    further = len(calls) - LISTED
    return sentence(*told, f"and the like in {further} further groups" if further > 0 else "")


def _clauses(case: Case, alike: list[DeviceStuck], timed: bool) -> list[Message]:
    late, running, completed = Stands.of(alike)
    begun = ", but on the GPU it has not begun" if timed else ", which does not end there"
    clauses: list[Message] = [[Does(late, "has", "have"), " issued ", _call(case, alike[0]), begun]]
    if running:
        clauses.append([Does(running, "runs", "run"), " the call and ", Verb(running, "waits", "wait"), " for it"])
    if completed:
        clauses.append([Does(completed, "has", "have"), " completed it"])
    return clauses


def _why(found: DeviceStuck, culprits: tuple[int, ...]) -> Message:
    not_begun: Message = ["an earlier kernel, copy or event on ", Ranks(culprits), " does not end"]
    open_: Message = ["on ", Ranks(culprits), " the call itself, or a kernel, copy or event before it, does not end"]
    which = not_begun if found.is_timed and not found.completed else open_
    return joined(which, "the code there issued everything that the others issued")


def _before(culprits: tuple[int, ...]) -> Message:
    return ["look at what the program launched before this call on ", Ranks(culprits)]


def _call(case: Case, found: DeviceStuck) -> Message:
    """'all_reduce #5 of default_pg at train.py:61 train()', or where they wait for messages."""
    call = found.call
    if call is None:
        return ["messages between them, ", waiting_at(case, found.members)]
    return [f"{call_name(call)} #{call.sequence} of {found.label}", at(call.frame)]


@cause(explains=AllArrived, order=1037)
def all_poll_their_devices(case: Case, blame: Blame[AllArrived]) -> Finding | None:
    """Without histories: all ranks wait for their devices, and nothing shows what these are at."""
    processes = [case.ranks[rank].process for rank in sorted(case.seen)]
    if case.programs or not all(each is not None and waits_for_device(each.looks) for each in processes):
        return None
    return Finding(
        "",
        sentence("all ranks wait for their devices, and none goes on", where_they_wait(case, tuple(sorted(case.seen)))),
        "their main threads poll the device: a call that was issued before those lines does not complete there, or a "
        "kernel does not end; which call that is, and who is missing from it, stacks do not show",
        case.to_see_history,
    )
