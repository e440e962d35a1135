"""Reading what a hostile job may have written: bounded in time and size, masked and escaped."""
