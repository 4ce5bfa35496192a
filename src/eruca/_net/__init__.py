"""Sockets: a link is one connection that carries requests and answers both ways; servers and callers own links."""
