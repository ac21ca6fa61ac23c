"""The dashboard: server-rendered pages over `AsyncClient.admin` (design.md section 7).

Needs the extra `rqretry[dashboard]`. The command is `rqretry dashboard`.
"""
