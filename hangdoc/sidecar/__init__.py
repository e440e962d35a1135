"""The process beside the ranks: launches the command unchanged, follows its progress, says when it stalls.

It knows nothing of verdicts: what a stall means is decided by the callback that the public API injects.
"""
