"""Conditions that do not stand around the call: in what is asked, made, registered, raised or put aside before.

``answers``, ``callables``
                      what a function goes by that the condition asks; what runs where a name or an object is called
``origin``            what set an argument that differs
``as_called``         the values of a callee's condition, by what both sides' callers show of it
``called_otherwise``, ``other_arm``, ``next_state``
                      another function that one call ran; the culprits' own arm; what chose the state of a machine
``unordered``         a loop over a set or a listing, whose order is another one in each process
``dispatched``        what one side alone looked up and ran, or the items that a loop called
``made_objects``, ``made_groups``, ``registered``, ``contexts``, ``in_forward``, ``in_loss``
                      around what made an object or a group, what gave a library its handler, a context, a model's way,
                      what a loss is made of
``in_library``            in the library's own code, below the user's line
``filled``, ``logged``, ``hooks``
                      what a metric holds, what is logged, what a hook answers
``set_before``        where a flag, a choice, a list or an argument was set that the condition asks
``decided_back``      what decides a value that a loop goes over or a library was given, some steps back
``prepared``, ``taken``
                      what put a message into a list, or an item into a queue, which others issue or take
``left_behind``       around statements that left something behind on one side alone: counts, lists, flags
``ran_alone``         around lines that one side alone has run
``caught``, ``raised``
                      an exception that a handler caught, or that is pending, and under what it is raised
``led_block``         a block that one rank goes through first, while the others wait at its entrance
``beside``            what the main thread does for another one, or waits for
``written``           around what one side alone wrote into the job's output
``hidden_calls``      under attach, around calls of all ranks that lie some calls back
"""
