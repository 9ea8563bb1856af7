"""Write the results of a build as files that can be published and cited, and verify such files."""
