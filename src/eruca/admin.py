"""Operate a running cluster from Python: what the commands `eruca dlq`, `txn`, `offset` and `cluster` do.

>>> async with Admin("127.0.0.1:9876") as admin:
...     print(await offsets.show(admin, "billing"))
"""

from __future__ import annotations

from eruca._admin import deadletters, offsets, replication, transactions
from eruca._admin.session import Admin

__all__ = ["Admin", "deadletters", "offsets", "replication", "transactions"]
