"""The nouns of hangdoc: frozen dataclasses, no I/O, no torch. Everyone may import them; they import nobody."""
