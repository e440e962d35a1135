"""What decides at which address a rank looks for the others?"""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.causes.addresses import what_set_them
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.snapshot import SourceText

FLEET = """\
def start(worker, cfg):
    {set}
    dist.init_process_group("gloo")
"""
PORTS, HOSTS = ("10.0.0.1:2900", "10.0.0.1:2901"), ("10.0.0.1:2900", "10.0.0.2:2900")


@pytest.mark.parametrize(
    ("text", "places", "expected"),
    [
        ("env = dict(os.environ, MASTER_PORT=str(a if cfg.warm else b))", PORTS, ["if cfg.warm"]),
        ('if cfg.own:\n        env["MASTER_ADDR"] = own_name()', HOSTS, ["if cfg.own:"]),
        ('if rank == 1:\n        os.environ.setdefault("MASTER_PORT", port)', PORTS, ["if rank == 1:"]),
        ('port = free()\n    os.environ["MASTER_PORT"] = port', PORTS, []),
    ],
)
def test_what_sets_the_variable(text: str, places: tuple[str, ...], expected: list[str]) -> None:
    sources = Sources((SourceText("/job/fleet.py", "<module>", 1, FLEET.replace("{set}", text)),))
    assert [each.source for each in what_set_them(sources, places)] == expected
