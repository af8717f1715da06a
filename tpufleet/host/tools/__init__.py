"""Programs for the people on a host, installed in /usr/local/bin: each is one file that imports nothing of ours."""
