"""Tickets as a help desk gets them, made up by a seed."""

import random
from collections import namedtuple

Ticket = namedtuple("Ticket", "number kind text")

KINDS = ("billing", "login", "network", "printer")
_TOPICS = {
    "billing": "invoice refund charge card payment month twice price",
    "login": "password account reset locked code mail sign user",
    "network": "wifi cable slow drop signal router speed office",
    "printer": "paper jam toner tray color page driver scan",
}
_COMMON = ("the", "a", "of", "and", "please", "help", "since", "today", "again", "is", "not", "works", "my", "still")
_MOODS = ("", "urgent ", "third time now ", "hello ")


def sentence(kind, noise, chance):
    topic = _TOPICS[kind].split()
    words = []
    for _ in range(chance.randrange(6, 18)):
        if chance.random() < noise:
            other = chance.choice([each for each in KINDS if each != kind])
            words.append(chance.choice(_TOPICS[other].split()))
        elif chance.random() < 0.45:
            words.append(chance.choice(topic))
        else:
            words.append(chance.choice(_COMMON))
    return " ".join(words)


def tickets(recipe):
    """Yield the tickets of a recipe; those of an archive have lost their capital letters, and some of their ends."""
    for number in range(recipe.first, recipe.first + recipe.tickets):
        chance = random.Random(f"{recipe.source} {number}")
        kind = chance.choices(KINDS, (4, 3, 2, 2))[0]
        text = chance.choice(_MOODS) + sentence(kind, recipe.noise, chance)
        if recipe.source == "archive":
            if len(text) > 70:
                text = text[: text.rindex(" ", 0, 70)]
        elif chance.random() < 0.2:
            text = text.title()
        yield Ticket(number, kind, text)
