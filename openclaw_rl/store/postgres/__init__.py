"""A store that several processes and machines share: PostgreSQL, by psycopg."""
