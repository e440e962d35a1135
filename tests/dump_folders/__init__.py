"""Folders of flight-recorder dumps from GPU jobs that never ran: simulated ranks, faults, and an oracle for each.

``simulator`` is the machine, ``programs`` what healthy jobs do, ``faults`` what goes wrong, ``write`` torch's dialects,
``oracle`` what can be known from a folder and how an answer is marked, ``folders`` the set, ``measure`` the table.
None but ``measure`` knows hangdoc: nothing here may be made to fit what hangdoc assumes.

Read in torch's sources: schemas 2.2, 2.3 and 2.10, how calls, messages and coalesced groups are numbered, what the
watchdog and the dump itself find out, and when. Not read, but from its history and tests: the keys of 2.0 and 2.1, and
which version between 2.4 and 2.9 brought a key.
"""
