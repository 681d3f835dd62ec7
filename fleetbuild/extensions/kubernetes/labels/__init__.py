"""Node labels and hardware classes, as labels, NFD rules, feature files and affinity."""
