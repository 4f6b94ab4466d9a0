"""The tables, and every query on them, in SQLAlchemy Core."""
