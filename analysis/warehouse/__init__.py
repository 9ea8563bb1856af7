"""Write the models of the catalog in the SQL of other engines, from the one source in analysis/sql."""
