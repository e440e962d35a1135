"""Lines for people."""

import sys


def say(mesh, text):
    if mesh.speaks:
        print(text, flush=True)


def warn(mesh, text):
    print(f"[rank {mesh.rank}, expert {mesh.expert}] {text}", file=sys.stderr, flush=True)


def banner(options, mesh, state):
    dense = sum(parameter.numel() for parameter in state.dense)
    sparse = sum(parameter.numel() for parameter in state.sparse)
    say(
        mesh, f"{mesh.replica_count} replicas of {mesh.expert_count} experts; {dense} dense numbers, {sparse} an expert"
    )
    changed = {name: value for name, value in options.items() if value is None or value == ""}
    if changed and mesh.speaks:
        say(mesh, f"off: {', '.join(sorted(changed))}")
