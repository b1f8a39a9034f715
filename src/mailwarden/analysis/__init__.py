"""Looking at messages: analyzers, the engines they ask, and the workers that hold hostile bytes."""
