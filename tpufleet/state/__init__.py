"""The local journal and the lock. The cloud and the hosts are the truth: all of this may be lost."""
