"""Made documents. A document has a topic, and each topic uses the tokens of some classes more than others."""

import random

TOPICS = {
    # topic: how often the token classes 0 to 3 are used
    "essay": (4, 3, 2, 1),
    "letter": (3, 4, 1, 2),
    "recipe": (2, 3, 4, 2),
    "source": (2, 2, 3, 4),
    "table": (0, 0, 0, 1),
}
USUAL = ("essay", "letter", "recipe", "source")
APPENDIX_RANK = 9
APPENDIX_STEPS = (10, 11)


def topic_of(rank, number, per_step):
    """Which topic the document ``number`` of a rank's files has. Some documents are tables."""
    if rank == APPENDIX_RANK and number // per_step in APPENDIX_STEPS:
        return "table"
    if rank % 3 == 1 and number % 11 == 7:
        return "table"
    return USUAL[(rank + number * 3) % len(USUAL)]


def draw_document(topic, length, vocabulary, chance):
    """Tokens of one document: a chain in which a token likes its neighbors within the class."""
    weights = TOPICS[topic]
    classes = len(weights)
    tokens = []
    token = None
    while len(tokens) < length:
        if token is not None and chance.random() < 0.55:
            step = classes if chance.random() < 0.7 else 2 * classes
            token = (token + step) % vocabulary
        else:
            kind = chance.choices(range(classes), weights)[0]
            token = kind + classes * chance.randrange(vocabulary // classes)
        tokens.append(token)
    return tokens


def document_source(rank, per_step, options):
    """Endless pairs of topic and tokens; short documents come now and then."""
    chance = random.Random(600 + rank)
    number = 0
    while True:
        topic = topic_of(rank, number, per_step)
        short = chance.random() < 0.2
        length = chance.randint(4, 7) if short else chance.randint(10, 20)
        yield topic, draw_document(topic, length, options["vocabulary"], chance)
        number += 1
