"""May an exception that was not seen have led a side to its `finally:`, or past a call?"""

from __future__ import annotations

from made_calls import LIBRARY, Made, made_calls

from hangdoc.diagnosis import diagnose
from hangdoc.model.diagnosis import Diagnosis

FIT = """
def fit(files, stop):
    for step in range(10):
        try:
            x = read(files[step])
            if stop.is_set():
                return
            dist.all_reduce(x)
        finally:
            dist.barrier()
"""
WAY = [(15, "work")]
REDUCE: Made = ("all_reduce", [(7, "fit"), *WAY])
BARRIER: Made = ("barrier", [(9, "fit"), *WAY])


def told(diagnosis: Diagnosis) -> tuple[str, str]:
    assert diagnosis.cause is not None
    return diagnosis.cause.code, str(diagnosis.confidence)


def calls(last: Made) -> dict[int, list[Made]]:
    return {rank: [REDUCE, BARRIER, last if rank == 3 else REDUCE] for rank in range(4)}


def test_without_an_exception_in_the_main_thread_a_return_led_there() -> None:
    assert told(diagnose(made_calls(FIT, calls(BARRIER)))) == ("HD101", "likely")  # a `finally` lies there as well


def test_with_one_in_the_main_thread_it_led_there() -> None:
    assert told(diagnose(made_calls(FIT, calls(BARRIER), handled={3: "OSError"}))) == ("HD103", "certain")


def test_what_another_thread_handles_is_not_seen() -> None:
    found = diagnose(made_calls(FIT, calls(BARRIER), in_thread=True))
    assert told(found)[1] == "likely"


def test_without_anything_else_that_leads_there_it_is_likely() -> None:
    plain = FIT.replace("if stop.is_set():", "y = 1").replace("    return", "z = 1")
    assert told(diagnose(made_calls(plain, calls(BARRIER), in_thread=True))) == ("HD103", "likely")


def test_what_was_handled_before_the_rank_went_on_is_not_seen() -> None:
    later: list[Made] = [REDUCE, BARRIER, BARRIER, ("broadcast", [(16, "work")])]
    by_rank = {rank: later if rank == 3 else [REDUCE, BARRIER, REDUCE] for rank in range(4)}
    found = diagnose(made_calls(FIT, by_rank))
    assert told(found)[1] == "likely"


HOOKS = """
def step(batch):
    x = 1
    y = 1
    dist.all_reduce(batch.x)
def fit(self, loader):
    for batch in loader:
        try:
            prepare(batch)
            self.hooks(batch)
        except ValueError:
            log.warning("bad batch")
        dist.broadcast(loss)
"""


def test_a_library_below_the_try_may_have_run_less_of_it() -> None:
    after: Made = ("broadcast", [(12, "fit")])

    def found(*way: tuple[int, str] | tuple[int, str, str]) -> Diagnosis:
        inside: Made = ("all_reduce", [(4, "step"), *way, (9, "fit")])
        return diagnose(made_calls(HOOKS, {r: [inside, after, inside if r < 3 else after] for r in range(4)}))

    assert told(found((50, "call", LIBRARY))) == ("HD103", "likely")
    assert told(found()) == ("HD103", "certain")
