"""What a task of an event loop awaits gives the cause; in a program without streams it is in the process."""

from __future__ import annotations
