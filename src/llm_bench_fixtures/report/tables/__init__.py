"""Tables before any format: `table` has cells and columns, each other module the tables with the same kind of rows."""
