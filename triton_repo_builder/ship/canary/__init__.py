"""A new version takes over step by step, and goes back by itself if it does worse than the stable one."""
