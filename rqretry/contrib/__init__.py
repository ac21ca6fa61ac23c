"""rqretry beside other libraries; each module here needs the extra that its error names."""
