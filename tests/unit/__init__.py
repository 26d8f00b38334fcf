"""One module at a time, in the process of the test. Folders mirror the product's."""
