"""A Model Context Protocol server: assistants look at a cluster, and change it if that is allowed."""
