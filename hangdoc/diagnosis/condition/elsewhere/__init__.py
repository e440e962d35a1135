"""Conditions that do not stand around the call: in what is asked, made, registered, raised or put aside before.

``answers``           tests by which something is answered or set, as they are told
``callables``         what a name is set to in its function
``origin``            what set an argument that differs
``as_called``         the values of a callee's condition, by what both sides' callers show of it
``unordered``         a loop over a set or a listing, whose order is another one in each process
``dispatched``        what one side alone looked up and ran, or the items that a loop called
``made_objects``, ``registered``, ``contexts``, ``in_forward``
                      around what made an object, what gave a library its handler, a context, a model's way
``in_library``            in the library's own code, below the user's line
``set_before``        where a flag, a choice, a list or an argument was set that the condition asks
``ran_alone``         around lines that one side alone has run
``caught``, ``raised``
                      an exception that a handler caught, or that is pending, and under what it is raised
``led_block``         a block that one rank goes through first, while the others wait at its entrance
``written``           around what one side alone wrote into the job's output
"""
