"""Reads the logs of a job, and stacks that somebody pasted, into facts (``hangdoc.model.logged``).

``sift`` finds the lines that matter among millions, ``lines`` says who speaks in each, one module for each kind of
source reads its facts, and ``read_logs`` makes one snapshot of it all. Nothing here concludes anything.
"""
