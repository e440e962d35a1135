"""Which condition the ranks took differently: from two sides whose calls differ to the branch point between them.

``divergence_point``  which of several equal calls is the one that is missing, or one too many
``stack_comparison``  which of two stacks is further on, and the guards around a frame of it
``candidates``        every guard at which the two stacks can have diverged
``as_called``         the values of a callee's condition, by what both sides' callers show of it
``made_objects``, ``registered``, ``contexts``, ``in_forward``, ``filled``, ``logged``, ``raised``
                      conditions elsewhere: around what made an object, what gave a library its handler, a context, a
                      model's way, what a metric holds, what is logged, an exception
``caught``            an exception that a handler caught, or that is pending, as what led a side away
``scores``            how likely each of them is, by its kind, its names and its values
``loop_counts``       how often each side went round a loop, by the calls it made there
``planned_rounds``    how often a library's loop is to go round, by its own values
``way_out``           the condition at which a side left a loop, and how sure it is that the loop did not end by itself
``round_or_loop``, ``inner_loop_left``, ``other_arm``, ``called_otherwise``
                      what comes before the likeliest guard: a round without the call, a loop further in, the loop of
                      the culprits' own arm, another function that one call ran
``next_state``, ``counted``
                      what chose the states of a machine that the sides are in; a test of what only counts rounds
``prepared``, ``taken``  the lines that put a message into a list, or an item into a queue, which others issue or take
``choice``            the candidates that the ranks' calls don't contradict, the likeliest first: read this one first
``answers``, ``origin``  what a function goes by that the condition asks, and what set an argument that differs
``hidden_calls``      under attach, conditions around calls of all ranks that lie some calls back
``branch_values``     the chosen one as the report shows it, with the values that differ

Example: rank 0 waits in the barrier at train.py:7, under `if best:`; rank 1 waits in an all_reduce at line 9, further
down in the same loop. Only rank 0 made the barrier. Its line has two guards, `for epoch in range(3):` at 4 and `if
best:` at 6. Both sides are in the loop, so it explains nothing; rank 1 is past line 6, so `if best:` was True on rank 0
and False on rank 1: it is the branch point.
"""
