"""The requirements of sdists and wheels, read or asked without running code as the user."""
