"""Lines on the error stream."""

import sys
import time

LEVELS = ("debug", "info", "warn")


class Log:
    def __init__(self, options, me):
        if options["level"] not in LEVELS:
            raise SystemExit(f"the level is one of {', '.join(LEVELS)}")
        self.level = LEVELS.index(options["level"])
        self.others = options["others"]
        self.me = me
        self.begin = time.monotonic()
        self.hidden = 0

    def __call__(self, text):
        self.put("info", text)

    def debug(self, text):
        self.put("debug", text)

    def warn(self, text):
        self.put("warn", text)

    def put(self, level, text):
        quiet = not self.me.first and not self.others
        if LEVELS.index(level) < self.level or (quiet and level != "warn"):
            self.hidden += 1
            return
        who = "" if self.me.first else f" rank {self.me.rank}"
        print(f"{time.monotonic() - self.begin:6.1f}{who} {text}", file=sys.stderr, flush=True)
