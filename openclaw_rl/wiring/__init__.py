"""Every part of the system, made from the configuration, once: for the server, the commands and the tests.

    foundation.py  the settings, the model, its renderer and the store: what every other part is made from
    serving.py     the engine, the gateway and the sockets that it listens on
    learning.py    the judge, credit, train and release loops
    commands.py    what a command needs without a server: judges with engines of their own, undo and forget

Starts nothing, but for the context managers. `pipeline.py` runs the parts.
"""
