"""Schemas of bodies: Avro and Protobuf, from files and from registries. Bytes to plain values, without Spark."""
