"""RocketMQ's own clients on Redis: their gRPC protocol `apache.rocketmq.v2`, answered.

An edge: one file for each group of calls, thin over the public client and its operations
(docs/decisions/0085).
"""
