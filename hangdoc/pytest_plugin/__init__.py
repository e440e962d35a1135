"""The pytest plugin: ``pytest --hangdoc=30`` and the fixture ``hangdoc_job``.

``hooks`` is what pytest loads in every session, and imports nothing. The rest is for sessions that ask for it:
``session`` runs beside the tests and talks to ``helper``, a process of its own that ``starting`` has started and that
watches what the tests start.
Another process, because a test that hangs may hold the GIL, and because of Yama: ranks permit one process to look.
"""
