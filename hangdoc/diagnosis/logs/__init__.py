"""The verdict on a job of which only logs are left: who waits in which call, who did not come, and how sure that is.

``known`` puts the facts of ``hangdoc.model.logged`` together, the modules of readings each offer what one kind of
evidence allows to conclude, and ``judge`` takes the strongest. An unmet need is the same here as on a live job: a rank
waits in a call for the members that have not come to it, and so on along the waits, to a rank that waits for nobody.
"""
