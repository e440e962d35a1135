"""The whole corpus of secrets in one job, and every format of its report: none of them is in any."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.made_calls import made_calls
from secret_corpus import ARGUMENTS, FURTHER_LINES, LINES, VARIABLE_SECRETS, VARIABLES

from hangdoc import api
from hangdoc.diagnosis import diagnose
from hangdoc.model.encode import snapshot_to_bytes
from hangdoc.model.masked import masked
from hangdoc.model.process import ProcessExit, Raised
from hangdoc.model.snapshot import JobSnapshot, LogTail
from hangdoc.report import FORMATS, write
from hangdoc.report.terminal import render

TEXT = "\ndef main():\n    if rank:\n        dist.all_reduce(t)\n    dist.barrier()\n"
ALL_LINES = [*LINES, *FURTHER_LINES]
SECRETS = [secret for _, secret in (*ARGUMENTS, *ALL_LINES)] + VARIABLE_SECRETS
PER_RANK = 20


def job(ended: bool) -> JobSnapshot:
    """Each rank has written some of the lines; its last one is also what its exception says."""
    parts = [ALL_LINES[at : at + PER_RANK] for at in range(0, len(ALL_LINES), PER_RANK)]
    barrier = [("barrier", [(5, "main")])]
    made = made_calls(TEXT, {0: [("all_reduce", [(4, "main")])], **dict.fromkeys(range(1, len(parts)), barrier)})
    ranks = []
    for rank, part in zip(made.ranks, parts, strict=True):
        lines = tuple(line for line, _ in part)
        raised = tuple(Raised("ValueError", line, (rank.process.looks[-1].threads[0].frames)) for line in lines)
        log = LogTail(f"rank{rank.rank}.log", lines)
        environment = (*rank.environment, *VARIABLES)
        end = ProcessExit(5.0, 1, exception="ValueError", message=lines[-1], raised_from=raised) if ended else None
        ranks.append(replace(rank, log=log, environment=environment, exit=end))
    words = tuple(word for words, _ in ARGUMENTS for word in words)
    log = LogTail("log", tuple(line for line, _ in ALL_LINES))
    return replace(made, ranks=tuple(ranks), command=("torchrun", "train.py", *words), log=log, ended=ended)


@pytest.mark.parametrize("ended", [False, True])
def test_no_format_shows_one(ended: bool, tmp_path: Path) -> None:
    hidden = masked(job(ended))
    saved = snapshot_to_bytes(hidden)
    shown = {"saved": gzip.decompress(saved).decode()}
    (tmp_path / "a.hangdoc").write_bytes(saved)
    # A file that somebody else has written, and did not mask.
    (tmp_path / "bare.hangdoc").write_bytes(snapshot_to_bytes(job(ended)))
    for name in ("a", "bare"):
        snapshot = api.load(tmp_path / f"{name}.hangdoc")
        found = diagnose(snapshot)
        shown[f"{name}: terminal"] = render(found, width=200, verbose=True)
        for suffix in FORMATS:
            write(found, tmp_path / f"{name}{suffix}", snapshot)
            shown[f"{name}: {suffix}"] = (tmp_path / f"{name}{suffix}").read_text()
    assert len(SECRETS) >= 150
    assert "…" in shown["saved"]
    for secret in SECRETS:
        assert [name for name, text in shown.items() if secret in text] == [], secret
    assert "wandb: api_key=…  ok" in shown["saved"]
