"""What falls due: expire, promote, deliver, retention, undecided transactions."""
