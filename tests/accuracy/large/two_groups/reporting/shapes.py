"""Numbers as text."""

_BARS = "_.-=*#"


def sparkline(values, width):
    """A line of at most ``width`` signs, as high as the values are."""
    if not values:
        return "(none)"
    if len(values) > width:
        step = len(values) / width
        values = [values[int(at * step)] for at in range(width)]
    low, high = min(values), max(values)
    if high - low < 1e-12:
        return _BARS[0] * len(values)
    return "".join(_BARS[round((value - low) / (high - low) * (len(_BARS) - 1))] for value in values)


def thousands(number):
    if isinstance(number, float) and not number.is_integer():
        return f"{number:.2f}"
    return f"{int(number):,}".replace(",", " ")
