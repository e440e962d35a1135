"""Tasks that nobody awaits, from sources alone."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.source.kept_tasks import awaited_futures, kept_task
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

ENGINE = """\
class Engine:
    def start(self):
        self.task = asyncio.create_task(self.run())

    async def score(self, prompt):
        done = asyncio.get_running_loop().create_future()
        await self.inbox.put((prompt, done))
        return await done

    async def run(self):
        while True:
            prompt, done = await self.inbox.get()
            done.set_result(self.scorer(prompt))


async def serve(engine):
    engine.start()
    await asyncio.gather(*(engine.score(p) for p in range(4)))


asyncio.run(serve(Engine()))
"""
RUNS_AT = Frame("serve.py", 21, "<module>")


def _sources(text: str) -> Sources:
    return Sources((SourceText("serve.py", "<module>", 1, text),))


def test_the_task_that_sets_a_result_and_that_nobody_awaits() -> None:
    task = kept_task(_sources(ENGINE))
    assert task is not None
    assert (task.started_at.line, task.ends_at.line) == (3, 13)
    assert {"get", "scorer"} <= task.calls


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    engine.start()\n", "    engine.start()\n    engine.task.add_done_callback(report)\n"),
        ("engine.score(p) for p in range(4))", "engine.score(p) for p in range(4)), engine.task"),
        ("self.task = asyncio.create_task(self.run())", "return asyncio.create_task(self.run())"),
        ("    async def run(self):", "    def run(self):"),
    ],
)
def test_a_task_that_somebody_asks_for_its_end_is_not_kept(old: str, new: str) -> None:
    assert old in ENGINE
    assert kept_task(_sources(ENGINE.replace(old, new))) is None


def test_futures_are_all_that_a_program_awaits() -> None:
    assert [at.line for at in awaited_futures(_sources(ENGINE), RUNS_AT)] == [8]
    other = ENGINE.replace("await self.inbox.put", "await self.free.acquire")
    assert awaited_futures(_sources(other), RUNS_AT) == []
