"""What single frames mean: whose code they are, and what library code is for."""
