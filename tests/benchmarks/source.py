"""What does it cost to keep a program whole? A job whose program has 20,000 lines in 100 modules, on 8 ranks.

    python tests/benchmarks/source.py [--repeat 5] [--ranks 8] [--lines 20000] [--guide]

One hung job under torchrun with a probe in each rank, captured by turns with its modules whole and without; a process
of its own for each capture, as nothing may be known from the one before. Prints medians with their spread, the peak
memory of these processes, the size of the two snapshots, and what the diagnosis of each takes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from attach import running
from guide_pages import put_figures

MODULES = 100
ROW = "a program of 20,000 lines in 100 modules kept whole: what the capture of 8 ranks takes longer / its snapshot"
MAIN = """
import os, sys, torch, torch.distributed as dist
{imports}
def train(folder):
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(2))
    open(os.path.join(folder, str(dist.get_rank())), "w").close()
    if dist.get_rank() == 1:
        dist.barrier()
    dist.all_reduce(torch.ones(4))
train(sys.argv[1])
"""
PART = '''
class Stage{n}:
    """What stage {n} keeps of its batches."""

    def __init__(self, store, folder="stages/{n}"):
        self.store, self.folder, self.seen, self.limit = store, folder, {{}}, {n}

    def offer(self, rank, batch, step):  # called by every rank
        if batch is None or step > self.limit:
            self.store.set(f"stage{n}/{{rank}}", "empty")
            return [row for row in self.seen.get(step, ()) if row]
        for row in batch:
            try:
                self.seen.setdefault(step, []).append(row * 2 + self.limit)
            except (KeyError, ValueError) as error:
                print("stage", error, "failed", step)
        return self.store.wait(["stage{n}/done", "all/done"])
'''
CAPTURE = """
import json, resource, sys, time
from hangdoc import api
from hangdoc.capture.read import sources
from hangdoc.model.encode import snapshot_to_bytes
if sys.argv[2] == "pieces":
    sources.whole_modules = lambda *given: ((), ())
began, worked = time.perf_counter(), time.process_time()
found = api.snapshot(int(sys.argv[1]))
taken, worked = time.perf_counter() - began, time.process_time() - worked
size = len(snapshot_to_bytes(found))
began = time.perf_counter()
verdict = api.diagnose(found)
diagnosed = time.perf_counter() - began
assert verdict.culprits == (1,), verdict
lines = sum(module.text.count("\\n") + 1 for module in found.modules)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
notes = [note for note in found.unavailable if note.what == "modules"]
print(json.dumps([taken, worked, size, len(found.modules), lines, peak, diagnosed, str(notes)]))
"""


def write_program(folder: Path, lines: int) -> Path:
    """A program of about so many lines; modules import each other in turn."""
    package = folder / "parts"
    package.mkdir()
    (package / "__init__.py").write_text("")
    each = PART.count("\n")
    for module in range(MODULES):
        text = "from parts import part1\n" if module else "import os\n"
        count = lines // MODULES // each
        text += "".join(PART.format(n=module * count + number) for number in range(count))
        (package / f"part{module}.py").write_text(text)
    main = folder / "train.py"
    main.write_text(MAIN.format(imports="\n".join(f"from parts import part{n}" for n in range(MODULES))))
    return main


def main() -> None:
    """Start the job, look at it, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--guide", action="store_true", help="write the figures into hangdoc/guide")
    options = parser.parse_args()
    found: dict[str, list[list[float]]] = {"pieces": [], "whole": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script, marks = write_program(folder, options.lines), folder / "marks"
        marks.mkdir()
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += [f"--nproc-per-node={options.ranks}", str(script), str(marks)]
        with running(command, marks, options.ranks) as pid:
            for number in range(2 * options.repeat):
                way = ("pieces", "whole")[(number + number // 2) % 2]  # who goes first alternates
                line = [sys.executable, "-c", CAPTURE, str(pid), way]
                done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
                if done.returncode:
                    sys.exit(done.stderr)
                *figures, notes = json.loads(done.stdout)
                found[way].append(figures)
                print(way, *(f"{figure:.2f}" for figure in figures), notes, flush=True)
    middle = {way: [statistics.median(column) for column in zip(*rows, strict=True)] for way, rows in found.items()}
    more = middle["whole"][0] - middle["pieces"][0]
    for way, (seconds, worked, size, modules, lines, peak, diagnosis) in middle.items():
        taken = [row[0] for row in found[way]]
        print(f"{way}: {seconds:.2f} s ({min(taken):.2f} to {max(taken):.2f}), {worked:.2f} s of them in CPU time, "
              f"{size / 1e3:.0f} kB, {modules:.0f} modules, {lines:.0f} lines, {peak:.0f} MB, "
              f"diagnosis {diagnosis:.2f} s")  # fmt: skip
    print(f"whole takes {more:+.2f} s; the target is 0.5")
    if options.guide:
        put_figures({ROW: f"{more:+.2f} s / {middle['whole'][2] / 1e3:.0f} kB"})


if __name__ == "__main__":
    main()
