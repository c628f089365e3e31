"""The paper's tables and curves on data at hand, and what this project adds to them: `make reproduce`."""
