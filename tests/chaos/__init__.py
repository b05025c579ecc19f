"""`make chaos`: bursts through the local stack while something fails, judged from outside."""
