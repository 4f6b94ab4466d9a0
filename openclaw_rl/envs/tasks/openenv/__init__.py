"""OpenEnv's protocol: servers of others are environments here, and our environments are such servers for others."""
