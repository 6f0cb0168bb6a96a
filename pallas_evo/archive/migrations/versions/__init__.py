"""The migrations, oldest first. Each one is frozen: it spells its tables out and imports nothing of ours."""
