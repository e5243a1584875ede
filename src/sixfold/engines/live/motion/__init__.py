"""A body that walks, runs, jumps, waves, sits, turns and dances, as poses of a skeleton."""
