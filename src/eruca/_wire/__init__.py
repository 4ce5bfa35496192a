"""Bytes to objects and back: frames, headers, bodies, records, ids, signatures. No I/O, no asyncio."""
