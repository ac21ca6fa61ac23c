"""Publishing: messages are encoded, cut into calls and sent in lanes; transactions; cancelling."""
