"""Tables with named columns: their files, what each column holds, and the rows that a network trains on."""
