"""Redis: connections, the pool, the topology, and the two stores that perform operations."""
