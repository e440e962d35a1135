"""What each waiting thread waits for, who could still give it, and who owes it: a wait-for graph with resources."""
