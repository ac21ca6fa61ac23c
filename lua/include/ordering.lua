-- What the functions of message_group_order know of a group: the script's table of keys, and what is
-- configured. `used` is false while no message of the partition ever had a message group.
keys.clock, keys.used, keys.ordered, keys.byte = clock, clock.order, ordered, byte
