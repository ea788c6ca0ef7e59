"""Array maths only: no model, no file, no id."""
