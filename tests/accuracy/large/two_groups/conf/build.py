"""Layers of configuration: defaults, presets, a JSON file, assignments."""

import copy
import json
import os
from pathlib import Path

from conf.defaults import DEFAULTS, PRESETS
from conf.rules import complaints


def merge(base, over, path=""):
    """A deep copy of ``base`` with the leaves of ``over``. New keys are allowed only in open tables."""
    result = copy.deepcopy(base)
    for key, value in over.items():
        where = f"{path}.{key}" if path else key
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merge(result[key], value, where)
        elif key in result or path.split(".")[-1] in ("priorities", "every", "mix"):
            result[key] = copy.deepcopy(value)
        else:
            raise KeyError(f"there is no {where} to set")
    return result


def nested(dotted, value):
    for part in reversed(dotted.split(".")):
        value = {part: value}
    return value


def literal(text):
    """JSON where it is JSON, else a list where it has commas, else the text itself."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return [each.strip() for each in text.split(",") if each.strip()] if "," in text else text


def lookup(config, dotted):
    value = config
    for part in dotted.split("."):
        if not isinstance(value, dict) or part not in value:
            raise KeyError(f"${{{dotted}}} leads nowhere")
        value = value[part]
    return value


def resolved(node, config, depth=0):
    """The node with all of its ``${a.b}`` replaced."""
    if depth > 8:
        raise ValueError("references of the configuration go in a circle")
    if isinstance(node, dict):
        return {key: resolved(value, config, depth) for key, value in node.items()}
    if isinstance(node, list):
        return [resolved(each, config, depth) for each in node]
    if isinstance(node, str) and node.startswith("${") and node.endswith("}"):
        return resolved(lookup(config, node[2:-1]), config, depth + 1)
    return node


def build_config(argv):
    """The configuration of ``[@preset …] [file.json …] [a.b=value …]``. Raises ``SystemExit`` with all complaints."""
    config = copy.deepcopy(DEFAULTS)
    for word in argv:
        if word.startswith("@"):
            if word[1:] not in PRESETS:
                raise SystemExit(f"no preset is called {word[1:]}; there are {', '.join(PRESETS)}")
            config = merge(config, PRESETS[word[1:]])
        elif "=" in word:
            name, _, text = word.partition("=")
            config = merge(config, nested(name, literal(text)))
        elif word.endswith(".json"):
            config = merge(config, json.loads(Path(word).read_text(encoding="utf-8")))
        else:
            raise SystemExit(f"{word} is no preset, file or assignment")
    if os.environ.get("FIXED") == "1":
        config["hooks"]["ordered"] = True
    config = resolved(config, config)
    wrong = complaints(config)
    if wrong:
        raise SystemExit("\n".join(["the configuration cannot work:", *(f"  {each}" for each in wrong)]))
    return config
