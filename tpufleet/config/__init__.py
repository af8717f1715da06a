"""The fleet file: `load.load` reads it, `template.template` writes one to begin with."""
