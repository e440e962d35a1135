"""Pure: a snapshot of the job in, a diagnosis out. No I/O beyond reading hangdoc's own data files.

rank          one process of the job, by its global number; ``seen`` and ``hidden`` ranks are in the snapshot or not
group         ranks that call collectives together, known by name and members
call, token   one collective of one rank; ``sequence`` numbers it within its group, ``order`` within the rank's program
site          the line of a call with its callers' lines; without the library's way it is the user's part of it
history       the calls of all ranks in one group; ``inferred`` where stacks alone show one call of each
front         the first call or message that a rank's device has not completed: issued is not arrived (NCCL)
gap           one call too many ('delete') or missing ('insert'); a repair, or alignment, is all gaps of a group
branch point  the guard (condition, loop, try, decorator) at which the two sides of a gap diverged
activity      what a rank does now, and in which call or on what it waits; the graph says who waits for whom
blame         the culprits with the explanation, its proof and its alternatives; a cause gives it a name
landmark      what a library's frame is for; tables of names and landmarks lie in ``frames``, operations in ``model``

The rooms build on each other: frames, source, calls, state, context, condition, explanation, messages, blame, causes.
"""

from hangdoc.diagnosis.verdict import diagnose

__all__ = ["diagnose"]
