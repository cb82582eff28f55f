"""What a trained agent achieves."""
