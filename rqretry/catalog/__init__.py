"""Topics, groups, routes and partitions: the truth, and its copies in the partitions."""
