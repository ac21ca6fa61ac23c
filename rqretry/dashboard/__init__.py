"""The dashboard: server-rendered pages over `AsyncClient.admin`.

Needs the extra `rqretry[dashboard]`. The command is `rqretry dashboard`.
"""
