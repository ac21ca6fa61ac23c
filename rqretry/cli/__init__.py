"""The command line, `rqretry`: main.py finds the commands, one file holds each group of them."""
