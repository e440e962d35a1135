"""What each rank did: which lines it has run, how its tests came out, in which order; by source and strength.

``table``      the one table that is asked (`case.table`): lines and outcomes by rank, unknown where sources disagree
``lines``      the lines, by counters and recorders
``outcomes``   the tests, one jump each
``decisions``  the conditions and loops that these jumps make up
``traces``     decisions and calls in their order, which ``alignment`` lays side by side
``parting``    where two ranks parted, by these; ``executions`` of all ranks, and what came out as never before
``moments``    when a condition came out as nowhere before
"""
