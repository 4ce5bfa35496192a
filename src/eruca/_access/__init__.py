"""Accounts and their rights: who may send which request. No other room decides about rights."""
