"""The demonstration: the main job on real processes, from the first send to a rewind that an online consumer feels."""
