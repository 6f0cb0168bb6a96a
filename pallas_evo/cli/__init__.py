"""The command line: `app` joins the commands, each of which is a thin module of its own."""
