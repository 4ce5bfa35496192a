"""The port of gRPC: HTTP/2 and the framing of gRPC. `calls` is what services see of it, `port` opens it."""
