"""What other tools say of the museum of real bugs in tests/export/museum, beside what the export says."""
