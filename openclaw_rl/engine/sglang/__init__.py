"""SGLang: how it is asked (`dialect.py`) and how it is started (`server.py`)."""
