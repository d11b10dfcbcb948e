"""What people do and ask: each function is one action on a database connection; the faces only show the result."""
