# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD509", "HD507"]
# culprits = [1]
# lines = [73, 67, 75, 82]
# source = "https://github.com/litz-lab/scarab-infra/pull/296"
# ///
"""After some training steps every rank runs one evaluation suite in a helper interpreter and all ranks share the scores."""
import json
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("suites")
SUITES = {0: "arithmetic", 1: "multilingual", 2: "spelling"}
GRADER = r'''
import json, logging, sys
logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s grader: %(message)s")
answers, scores = [json.loads(line) for line in open(sys.argv[1])], []
for row in answers:
    said, want = row["said"], row["want"]
    if not said.isascii():
        logging.warning("answer %r is not plain ascii, normalised before the comparison", said)
        said = said.encode("ascii", "ignore").decode()
    scores.append(float(said.strip() == want.encode("ascii", "ignore").decode().strip()))
json.dump({"score": sum(scores) / len(scores), "n": len(scores)}, sys.stdout)
'''


class TinyModel:
    def __init__(self, dim: int = 64):
        torch.manual_seed(0)
        self.weight = torch.randn(dim, dim) / dim**0.5

    def train(self, steps: int) -> None:
        for _ in range(steps):
            x = torch.randn(32, self.weight.shape[0])
            grad = x.T @ (x @ self.weight - x) / len(x)
            dist.all_reduce(grad)
            self.weight -= 0.05 * grad / dist.get_world_size()

    def answers(self, suite: str, count: int) -> list[dict]:
        rows = []
        for i in range(count):
            want = {"arithmetic": str(i * 7), "spelling": "letter" * (i % 3 + 1), "multilingual": f"größe {i} 数字"}[suite]
            rows.append({"said": want if i % 5 else want + "?", "want": want})
        return rows


class SuiteRunner:
    def __init__(self, folder: Path):
        self.folder = folder
        self.grader = folder / "grader.py"
        self.grader.write_text(GRADER)

    def run(self, suite: str, rows: list[dict]) -> dict:
        answers = self.folder / f"{suite}.jsonl"
        answers.write_text("\n".join(json.dumps(r) for r in rows))
        proc = subprocess.Popen(
            [sys.executable, str(self.grader), str(answers)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if proc.wait() != 0:
            raise RuntimeError(f"suite {suite} failed: {proc.stderr.read()[-400:]}")
        warnings = proc.stderr.read().count("WARNING")
        result = json.loads(proc.stdout.read())
        return {"suite": suite, "warnings": warnings, **result}


def evaluate(model: TinyModel, runner: SuiteRunner, count: int) -> list[dict]:
    suite = SUITES[dist.get_rank()]
    mine = runner.run(suite, model.answers(suite, count))
    scores = [None] * dist.get_world_size()
    dist.all_gather_object(scores, mine)
    return scores


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    base = Path(os.environ.get("TMPDIR", tempfile.gettempdir()))
    runner = SuiteRunner(Path(tempfile.mkdtemp(prefix=f"suite{rank}-", dir=base)))
    model = TinyModel()
    for round_no, count in enumerate((40, 400, 4000)):
        model.train(20)
        scores = evaluate(model, runner, count)
        if rank == 0:
            log.info("round %d: %s", round_no, scores)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
