"""Which condition the ranks took differently: from two sides whose calls differ to the branch point between them.

``divergence_point``  which of several equal calls is the one that is missing, or one too many
``stack_comparison``  which of two stacks is further on, and the guards around a frame of it
``common_function``   the function in which both sides are
``candidates``        every guard at which the two stacks can have diverged
``rounds_ahead``      which round of its loops each side is in
``scored``            each of them with what its values say of it
``scores``            how likely each of them is, by its kind, its names and its values
``loops``             rounds: did a side leave a loop early, skip a round, or begin elsewhere?
``elsewhere``         conditions that do not stand around the call: in what is asked, made, registered or raised before
``possible``          which of them the ranks' calls and values rule out
``choice``            those by which a reason has parted the sides, the likeliest first: read this one first
``tested``            how a guard came out on each side, and the one at which recorders saw the sides part
``further_on``        what may have parted the sides after the condition: what was not read, a library's own test
``skipped_alone``     whether one rank alone has been, by what it ran or wrote, where a message is skipped
``later_in_turn``     whether a rank comes to a peer later in its loop over peers
``ways_past``         those that go the same way each time
``branch_values``     the chosen one as the report shows it, with the values that differ

Example: rank 0 waits in the barrier at train.py:7, under `if best:`; rank 1 waits in an all_reduce at line 9, further
down in the same loop. Only rank 0 made the barrier. Its line has two guards, `for epoch in range(3):` at 4 and `if
best:` at 6. Both sides are in the loop, so it explains nothing; rank 1 is past line 6, so `if best:` was True on rank 0
and False on rank 1: it is the branch point.
"""
