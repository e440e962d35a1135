"""What the recorder of branches may cost, and which branches are told of no more once that is used up.

Nothing in it may raise by itself, and all it needs it reaches by defaults, as in the recorder.
"""

from __future__ import annotations

import sys
from time import process_time_ns

from hangdoc_probe_caught import catch

# Judgement.
EVENT_NS = 400  # measured: 385 (3.13)
RARE_NS = 1000  # of one that is kept by itself
CAUGHT_NS = 2500  # of an exception that is caught
SHARE = 0.0028  # of a rank's CPU time, and the rest at once: 0.5 % over ten seconds
RARE_SHARE = 0.0007  # more, to keep what comes rarely
MOST_AT_ONCE_NS, MOST_RARE_AT_ONCE_NS = 12_000_000, 3_000_000
JUDGED_EVERY = 64  # outcomes of a branch, as the recorder's callback has it, too
OF_A_WAY, MOST_WAYS = 16, 800  # the newest outcomes of a way of a branch that comes rarely: 2 MB
RARELY = 40  # a count has so many bits; beyond are those that were kept by themselves
DEEPEST = 50  # frames among which another one of the same function is looked for


def judge_of(state, tool, name):
    """A function of (code, offset, entry, count), asked every ``JUDGED_EVERY`` outcomes of a branch."""
    monitoring = sys.monitoring
    budget, own_marks, of_loops = [MOST_AT_ONCE_NS, process_time_ns()], {}, {}
    begun = budget[1]
    of_rare = [MOST_RARE_AT_ONCE_NS, begun]
    left = [MOST_WAYS]

    def judge(
        code,
        offset,
        entry,
        count,
        budget=budget,
        own_marks=own_marks,
        of_loops=of_loops,
        roots=state.roots,
        begun=begun,
        left=left,
        of_a_way=OF_A_WAY,
        outcomes=state.outcomes,
        newest=state.newest,
        rings=state.rings,
        catching=state.catching,
        catch=catch,
        state=state,
        told=state.hot,
        unlined=state.unlined,
        nested=state.nested,
        tool=tool,
        name=name,
        lines=~monitoring.events.LINE,
        get_local_events=monitoring.get_local_events,
        get_tool=monitoring.get_tool,
        set_local_events=monitoring.set_local_events,
        getframe=sys._getframe,
        now=process_time_ns,
        every=JUDGED_EVERY,
        event_ns=JUDGED_EVERY * EVENT_NS,
        caught_ns=JUDGED_EVERY * CAUGHT_NS,
        of_rare=of_rare,
        rare_ns=RARE_NS,
        rare_share=RARE_SHARE,
        rare_most=MOST_RARE_AT_ONCE_NS,
        share=SHARE,
        most=MOST_AT_ONCE_NS,
        deepest=DEEPEST,
        rarely=RARELY,
        once=1 << RARELY,
        id=id,
        len=len,
        min=min,
        max=max,
        type=type,
        list=list,
        disable=monitoring.DISABLE,
    ):
        """DISABLE if the budget is used up, and the branch takes more than its part of it; else None.

        The program's own have half of it between them, and frameworks' loops, which decide more in a step, the other
        half; all have the same part where that is more for the program's.

        What comes rarely is judged each time: of its count, the part that says when is not gone on with.
        """
        key = id(code)
        way = key, entry[1]
        kept, cost = newest.get(way), event_ns
        if key in catching and offset in catching[key]:
            catch(state, entry)
            outcomes[key][entry[1]] = count - 1 + once
            if (count >> rarely) + 1 & every - 1:
                return None
            cost = caught_ns
        elif count == 1:
            if left[0] > 0:
                left[0] -= 1
                newest[way] = [entry]
                outcomes[key][entry[1]] = once
            # That which ends a recursion comes out so first where it is deepest.
            frame = None if key in nested else getframe(2).f_back
            while frame is not None and deepest:
                if frame.f_code is code:
                    nested[key] = True
                    break
                frame, deepest = frame.f_back, deepest - 1
            return None
        elif type(kept) is list:
            of_rare[0] -= rare_ns
            if of_rare[0] < 0:
                at = now()
                of_rare[:] = min(rare_most, (at - of_rare[1]) * rare_share), at
            number = count >> rarely
            oldest = kept[number % of_a_way] if len(kept) == of_a_way else None
            in_ring = oldest is not None and number > every and oldest[2] > rings[len(entry) > 3][0][2]
            if in_ring or of_rare[0] < rare_ns:
                newest[way] = entry[2]
                outcomes[key][entry[1]] = number + (count & once - 1)
                return None
            if oldest is None:
                kept.append(entry)
            else:
                kept[number % of_a_way] = entry
            outcomes[key][entry[1]] = count - 1 + once
            return None
        elif kept is not None:
            if kept < rings[len(entry) > 3][0][2]:
                newest[way] = [entry]
                outcomes[key][entry[1]] = count - 1 + once
            else:
                newest[way] = entry[2]
        at = now()
        own = not code.co_filename.startswith(roots)
        marks = own_marks if own else of_loops
        since = at - marks.get(way, begun)
        marks[way] = at
        rest = min(most, budget[0] + (at - budget[1]) * share) - cost
        budget[:] = max(0, rest), at
        every_one, twice = len(own_marks) + len(of_loops), 2 * len(marks)
        parts = min(every_one, twice) if own else max(every_one, twice) if own_marks else every_one
        if rest >= 0 or since * share >= cost * parts:
            return None
        told[key, offset] = True
        # The interpreter looks for new lines where one begins, also after it has told of all of them: 5 % of a loop.
        if key not in unlined and get_tool(tool) == name:
            unlined[key] = True
            set_local_events(tool, code, get_local_events(tool, code) & lines)
        return disable

    return judge


def times(count):
    """How often it was, of what is in ``outcomes``."""
    return (count >> RARELY) + (count & (1 << RARELY) - 1)
