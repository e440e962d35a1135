"""The watches of one job find each other and come to one verdict.

The watch beside rank 0 leads. It starts a TCPStore in a helper process and leaves its address in the job's own store,
where the others look for it (``place``). Everybody tells the lead now and then whether its ranks move (``records``,
through a ``boards.Board``). When all stand still, the lead asks all for a snapshot, joins the snapshots (``wire``), and
hands the verdict back. What the lead and the others do is in ``lead`` and ``member``, one step at a time and without a
thread; ``meeting`` takes the steps; ``together`` is what the watch loop sees of it.
"""
