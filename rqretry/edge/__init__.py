"""What talks to the outside: the command line. The core never imports from here."""
