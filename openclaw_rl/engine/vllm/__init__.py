"""vLLM: how it is asked (`dialect.py`), where it is installed and how it is started (`server.py`)."""
