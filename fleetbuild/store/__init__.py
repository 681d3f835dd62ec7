"""Packages on the controller: resolve and fetch dependencies, and store built wheels."""
