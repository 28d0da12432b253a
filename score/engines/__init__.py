"""What runs the parts of a job: processes of this machine, or a Ray cluster."""
