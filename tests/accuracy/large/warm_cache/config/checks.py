"""What must hold between options."""

NEEDED = {
    "run": ("seed", "threads"),
    "features": ("buckets", "ngrams", "weighting"),
    "cache": ("folder", "part_rows"),
    "learn": ("epochs", "batch", "rate"),
}
WEIGHTINGS = ("count", "binary", "tfidf")


def problems(opts):
    """Sentences about all that is wrong; none where all is well."""
    found = []
    for section, names in NEEDED.items():
        have = opts.get(section)
        if have is None:
            found.append(f"section [{section}] is missing")
            continue
        found += [f"[{section}] {name} is missing" for name in names if name not in have]
    if found:
        return found
    for name in ("train", "valid", "test"):
        if name not in opts["splits"]:
            found.append(f"[split:{name}] is missing")
        elif opts["splits"][name]["tickets"] < opts["learn"]["batch"]:
            found.append(f"split {name} has fewer tickets than a batch")
    features, learn = opts["features"], opts["learn"]
    if not isinstance(features["ngrams"], list):
        features["ngrams"] = [features["ngrams"]]
    if any(size < 1 for size in features["ngrams"]):
        found.append("ngrams are of one word or more")
    if features["weighting"] not in WEIGHTINGS:
        found.append("weighting is one of " + ", ".join(WEIGHTINGS))
    if not 0 <= learn["average"] < 1:
        found.append("average is a share below 1")
    if learn["warm_epochs"] >= learn["epochs"]:
        found.append("it would be warm-up all along")
    return found
