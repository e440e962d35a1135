"""Rounds of loops: did a side leave early, skip a round, or begin elsewhere, and by which condition?

``executions``        which calls of a rank lie in a loop, and how each execution of it ended
``loop_counts``       how often each side went round a loop, by the calls it made there
``ended_by_exception``
                      whether an exception took a side out of a loop
``way_out``           the condition at which a side left a loop, and how sure it is that the loop did not end by itself
``round_or_loop``     a round without the call
``left_out``, ``iterators``
                      what the iterator of a loop leaves out, and by what it ends
``leading_out``       the handlers and tests that lead out of a loop which a thread has left
"""
