"""ReadStore -> what people and programs see of them: plain read models, each with one JSON form (`to_json`).

    rows      the store, opened to be read; the only place besides `wiring.py` that opens it
    sessions  conversations, and the keys that open the door       lessons   a turn and what became of it
    versions  what was learned, and the steps that made it          why       from a sentence to a version and back
    upcoming  what the next steps would learn from                  health    what waits, what is paused, what is broken
    tokens    ids -> what each of them says

The commands print them, and a page can serve them. Knows no terminal, and changes nothing.
"""
