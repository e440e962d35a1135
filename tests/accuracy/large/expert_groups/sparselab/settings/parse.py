"""Options from the command line: `tiny steps=30 clip=off`, and from SPARSELAB_OPTIONS in the environment."""

import ast
import os
import shlex

from sparselab.settings.presets import BASE, resolve

NOTHING = ("off", "none", "")
POSITIVE = ("experts", "replicas", "vocabulary", "width", "context", "batch", "rate")


def read_options(arguments):
    words = shlex.split(os.environ.get("SPARSELAB_OPTIONS", "")) + list(arguments)
    presets = [word for word in words if "=" not in word]
    if len(presets) > 1:
        raise SystemExit(f"one preset at a time, not {' and '.join(presets)}")
    options = resolve(presets[0] if presets else "tiny")
    for word in words:
        if "=" in word:
            name, _, text = word.partition("=")
            options[known(name)] = value_of(text, BASE[name])
    if os.environ.get("FIXED") == "1":
        options["fill_gradients"] = True
    validate(options)
    return options


def known(name):
    if name in BASE:
        return name
    close = [each for each in BASE if each.startswith(name[:3])]
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    raise SystemExit(f"no option {name}{hint}")


def value_of(text, default):
    if text.lower() in NOTHING:
        return "" if isinstance(default, str) else None
    if isinstance(default, str):
        return text
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError) as error:
        raise SystemExit(f"{text!r} is no number") from error
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def validate(options):
    wrong = [name for name in POSITIVE if not options[name] or options[name] <= 0]
    if wrong:
        raise SystemExit(f"must be positive: {', '.join(wrong)}")
    if options["vocabulary"] % options["experts"]:
        raise SystemExit("every expert has the same number of token classes")
    if not 0 <= options["route_floor"] < options["capacity"] <= 1:
        raise SystemExit("the floor of the routing lies below the capacity")
    if options["decay"] not in ("cosine", "linear", "constant"):
        raise SystemExit(f"no decay {options['decay']}")
    if options["tied"] and options["freeze_embedding"]:
        raise SystemExit("a tied output cannot learn while the embedding is frozen")
