"""The options of a port for gRPC. Their keys are those of RocketMQ's proxy, where that has one."""

from __future__ import annotations

from dataclasses import dataclass

from eruca._ground import limits
from eruca._ground.config import option


@dataclass(frozen=True)
class GrpcOptions:
    """Limits of gRPC connections. Without slots, so that options of servers can have several such bases."""

    message_bytes_max: int = option(
        limits.GRPC_MESSAGE_BYTES_MAX,
        "grpcMaxInboundMessageSize",
        "maximum size of one gRPC message of a client, after decompression",
        unit="bytes",
        low=1024,
        high=limits.OPTION_MAX,
    )
    grpc_idle_ms: int = option(
        limits.IDLE_SECONDS_MAX * 1000,
        "grpcClientIdleTimeMills",
        "a gRPC connection without calls is closed after this long without a byte; one with open calls gets a ping",
        unit="ms",
        low=1000,
    )
    streams_max: int = option(
        limits.HTTP2_STREAMS_MAX,
        "grpcMaxCallsPerConnection",
        "maximum number of open calls on one gRPC connection; clients wait with further ones",
        low=1,
        high=1_000_000,
    )
