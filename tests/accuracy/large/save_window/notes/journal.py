"""What happened, in a file for each rank, and on the terminal from the leading one."""

import sys
import time
from pathlib import Path
from types import TracebackType

from talk.ranks import Here


class Journal:
    def __init__(self, folder: Path, here: Here, every: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.here = here
        self.every = every
        self.file = (folder / f"journal-{here.rank}.txt").open("w", buffering=1)
        self.since = time.monotonic()
        self.repeated = ("", 0)

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None and kind is not SystemExit:
            self.note(f"ended by {error!r}")
        self.file.close()

    def note(self, text: str) -> None:
        """To the file; a line like the last one is only counted."""
        last, count = self.repeated
        if text == last:
            self.repeated = (text, count + 1)
            return
        if count:
            self.file.write(f"  … {count} more\n")
        self.repeated = (text, 0)
        self.file.write(f"{time.monotonic() - self.since:8.2f} {text}\n")

    def tell(self, text: str) -> None:
        if self.here.leads:
            print(text, file=sys.stderr, flush=True)
        self.note(text)

    def is_turn(self, step: int) -> bool:
        return self.every > 0 and step % self.every == 0
