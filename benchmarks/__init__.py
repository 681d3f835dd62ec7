"""fleetbuild beside what a user would pick instead, on real SSH nodes."""
