"""Rounds of loops: did a side leave early, skip a round, or begin elsewhere, and by which condition?

``executions``        which calls of a rank lie in a loop, and how each execution of it ended
``loop_counts``       how often each side went round a loop, by the calls it made there
``ended_by_exception``
                      whether an exception took a side out of a loop
``loop_exit``         what a side went on with after the last call of the loop that both made
``ran_to_its_end``    a loop that a side left with its last count, as it always does
``planned_rounds``    how often a library's loop is to go round, by its own values
``counted``           a test of what only counts the rounds
``way_out``           the condition at which a side left a loop, and how sure it is that the loop did not end by itself
``round_or_loop``, ``inner_loop_left``
                      what comes before the likeliest guard: a round without the call, a loop further in
``skip_or_end``       which of two stories fits better: a round without the call, or a loop that ended
``left_out``, ``iterators``
                      what the iterator of a loop leaves out, and by what it ends
``leading_out``       the handlers and tests that lead out of a loop which a thread has left
``held``              what decides how many items a loop finds in a container
"""
