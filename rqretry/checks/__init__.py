"""Is everything as it should be: the server (doctor), and the data (auditor)."""
