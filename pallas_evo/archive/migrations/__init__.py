"""Alembic migrations of the archive: `env.py` and one numbered module for each schema."""
