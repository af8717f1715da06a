"""The command line: one thin file per verb. Verbs import what they need when they run, so that `--help` is quick."""
