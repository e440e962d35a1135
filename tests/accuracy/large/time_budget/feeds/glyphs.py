"""Glyphs: bars, crosses, rings and the like on a small square."""


def draw(kind, side, chance):
    """Rows of zeros and ones."""
    middle_row = side // 2 + chance.randint(-1, 1)
    middle_column = side // 2 + chance.randint(-1, 1)
    reach = chance.randint(1, side // 2 - 1)
    rows = []
    for r in range(side):
        row = []
        for c in range(side):
            down, right = r - middle_row, c - middle_column
            near = abs(down) <= reach and abs(right) <= reach
            row.append(1.0 if near and on(kind, down, right, reach) else 0.0)
        rows.append(row)
    return rows


def on(kind, down, right, reach):
    if kind == 0:
        return down == 0
    if kind == 1:
        return down == 0 or right == 0
    if kind == 2:
        return max(abs(down), abs(right)) == reach
    if kind == 3:
        return down == right
    if kind == 4:
        return abs(down) == abs(right)
    return down >= 0 and right >= 0
