"""`rqretry worker` from the outside: processes, their health, their replacement."""
