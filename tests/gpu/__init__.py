"""Tests on a machine with an NVIDIA GPU, with what a bundle carries along and no network."""
