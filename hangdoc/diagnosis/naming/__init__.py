"""The name of what has happened: a code of the catalogue, by the form of the hypothesis, the need and the reason."""
