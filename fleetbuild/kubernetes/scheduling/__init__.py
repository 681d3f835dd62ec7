"""Hardware classes for schedulers and autoscalers: DRA, Kueue, node pools, image compatibility."""
