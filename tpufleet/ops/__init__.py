"""What the commands do: observe, apply, sync, launch, collect. Effects at the edge, each of them safe to repeat."""
