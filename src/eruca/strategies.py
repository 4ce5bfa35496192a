"""How a group's queues are divided among its members, for `Rebalance(strategy=...)`.

The names of the built-in strategies work too: `Consumer(..., rebalance=Rebalance(strategy="circle"))`.
"""

from __future__ import annotations

from eruca._core.allocation import (
    AverageStrategy,
    CircleStrategy,
    ConfigStrategy,
    ConsistentHashStrategy,
    MachineRoomStrategy,
    NearbyRoomStrategy,
    RoomResolver,
    Strategy,
)

__all__ = [
    "AverageStrategy",
    "CircleStrategy",
    "ConfigStrategy",
    "ConsistentHashStrategy",
    "MachineRoomStrategy",
    "NearbyRoomStrategy",
    "RoomResolver",
    "Strategy",
]
