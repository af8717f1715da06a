"""SSH from home to the hosts: connections, keys, trust in host keys, and the agent that is shipped to each host."""
