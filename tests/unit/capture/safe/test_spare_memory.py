"""How much memory may be filled."""

from __future__ import annotations

import pytest

from hangdoc.capture.safe import spare_memory as module
from hangdoc.capture.safe.spare_memory import spare_memory


@pytest.mark.parametrize(
    ("files", "spare"),
    [
        ({"/proc/meminfo": "MemTotal: 9 kB\nMemAvailable:    4096 kB\n"}, 1 << 20),
        (
            {
                "/proc/meminfo": "MemAvailable:    4096 kB\n",
                "/proc/self/cgroup": "0::/pod/job\n",
                "/sys/fs/cgroup/pod/job/memory.max": "max\n",
                "/sys/fs/cgroup/pod/job/memory.current": "7\n",
                "/sys/fs/cgroup/pod/memory.max": "2000\n",
                "/sys/fs/cgroup/pod/memory.current": "1600\n",
            },
            100,
        ),
        (
            {
                "/proc/meminfo": "MemAvailable:    4096 kB\n",
                "/proc/self/cgroup": "0::/\n",
                "/sys/fs/cgroup//memory.max": "2000\n",
                "/sys/fs/cgroup//memory.current": "2400\n",
            },
            0,
        ),
        ({}, 1 << 30),
    ],
)
def test_a_fourth_of_what_is_left(files: dict[str, str], spare: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "read_text", lambda path, *_: files.get(path))
    assert spare_memory() == spare


def test_here_there_is_some() -> None:
    assert spare_memory() > 1 << 20
