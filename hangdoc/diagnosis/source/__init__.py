"""What the captured source says: conditions around a line, names, values, locks.

``syntax``   what holds a line, how an expression reads, which names it has
``guards``   the conditions, loops and handlers that decide whether a line runs
``handlers`` what goes on after an exception, and what its suite leaves behind
``queries``  how a loop ends, what raises, where a name is set
``settings`` what set a value, one step back
``values``   the values of names on each rank, and whether they are still those that a guard tested
``stopped_by``  the user's lines that end a library's loop
``locks``    the locks that a line acquires, and those that the statements around it hold
"""
