"""How saved runs lie in a database: connections, the tables, and what is in their rows."""
