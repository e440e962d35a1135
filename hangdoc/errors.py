"""Every error hangdoc raises on purpose.

    HangdocError            what happened, what to do next, exit status
    ├── UsageError          the command line or the configuration is wrong            2
    ├── CannotLook          the job or file cannot be looked at (gone, forbidden)     3
    ├── BadSnapshot         the file is not a snapshot that this version can read     3
    ├── CannotRun           the watched command could not be run                      126
    ├── CommandNotFound     the watched command was not found                         127
    └── WatcherFailed       hangdoc itself failed before the command ran              125

The exit statuses are public: they are the ones of the command line.
"""

from __future__ import annotations


class HangdocError(Exception):
    """Base of all deliberate errors.

    ``what`` is one line that says what happened, ``remedy`` one line that says what to do next.
    """

    exit_status = 125

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what}\n  {self.remedy}" if self.remedy else self.what


class UsageError(HangdocError):
    """The command line or the configuration is wrong."""

    exit_status = 2


class CannotLook(HangdocError):  # noqa: N818 - reads as the sentence it is
    """The job or the file cannot be looked at."""

    exit_status = 3


class BadSnapshot(CannotLook):
    """The file is not a snapshot that this version can read."""


class CannotRun(HangdocError):  # noqa: N818
    """The watched command exists and could not be run."""

    exit_status = 126


class CommandNotFound(HangdocError):  # noqa: N818
    """The watched command was not found."""

    exit_status = 127


class WatcherFailed(HangdocError):  # noqa: N818
    """hangdoc failed before the command ran."""

    exit_status = 125
