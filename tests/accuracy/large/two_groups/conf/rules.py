"""What a configuration has to keep to."""


def positive(config, *names):
    for name in names:
        section, _, key = name.partition(".")
        value = config[section][key] if key else config[section]
        if not isinstance(value, (int, float)) or isinstance(value, bool) or value <= 0:
            yield f"{name} must be a number above 0, not {value!r}"


def _net(net):
    if net["experts"] & (net["experts"] - 1):
        yield "net.experts must be a power of two"
    if net["router"] not in ("hash", "learned"):
        yield f"net.router is hash or learned, not {net['router']}"
    if net["capacity"] < 1.0:
        yield "with net.capacity below 1 tokens are lost in every batch"


def _corpus(corpus):
    share = sum(corpus["mix"].values())
    if abs(share - 1.0) > 1e-6:
        yield f"the shares of corpus.mix add up to {share:g}"
    if any(each < 0 for each in corpus["mix"].values()):
        yield "corpus.mix has a share below 0"
    if corpus["shortest"] > corpus["length"]:
        yield "no document is as long as corpus.shortest"
    if not 0 < corpus["mask"] < 0.5:
        yield "corpus.mask is a share below one half"


def _hooks(hooks):
    doubled = sorted({name for name in hooks["use"] if hooks["use"].count(name) > 1})
    if doubled:
        yield f"hooks.use names {', '.join(doubled)} more than once"
    for name, every in hooks["every"].items():
        if every < 1:
            yield f"hooks.every.{name} is 1 or more"
        elif name in ("experts", "dense"):
            yield f"{name} belongs to every step"


def complaints(config):
    """All that is wrong with it, a sentence each."""
    found = list(positive(config, "steps", "net.width", "net.layers", "corpus.batch", "optim.rate", "report.every"))
    if found:
        return found
    return [*_net(config["net"]), *_corpus(config["corpus"]), *_hooks(config["hooks"])]
