"""Folders of flight-recorder dumps from GPU jobs that never ran: simulated ranks, faults, and an oracle for each."""
