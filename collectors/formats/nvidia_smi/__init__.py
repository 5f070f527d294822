"""What ``nvidia-smi -q`` prints, as text and as XML."""
