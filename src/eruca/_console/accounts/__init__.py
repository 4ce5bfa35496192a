"""Accounts and rights of a cluster: who may use its brokers."""
