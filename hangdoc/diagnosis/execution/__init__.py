"""What each rank did: how its tests came out, by source and strength."""
