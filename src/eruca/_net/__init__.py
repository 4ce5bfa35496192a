"""Sockets: a link is one connection that carries requests and responses both ways; servers and callers own links."""
