"""Tables with named columns: the cells of their files, what each column holds, and what users decide."""
