"""Why: of all that decided whether the culprits came to where they are, what was not alike on the two sides."""
