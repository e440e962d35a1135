"""What the code can do: control flow, control dependence, definitions and calls, and the backward slice over them.

Everything syntactic of the diagnosis lies here; no other folder imports `ast`, and nothing that is exported names it.

``items``       places, predicates, definitions, and how one was reached
``pieces``      captured texts, parsed
``graph``       the control flow graph; ``expressions`` and ``statements`` build it
``dominance``   dominators and control dependence
``functions``   functions, class and module bodies
``slicing``     the slice
``program``     all of a job's sources
"""

from hangdoc.diagnosis.program.functions import Function
from hangdoc.diagnosis.program.items import KINDS, Definition, Predicate, Reached, Span
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.program.slicing import Slice

__all__ = ["KINDS", "Definition", "Function", "Predicate", "Program", "Reached", "Slice", "Span"]
