"""Commands that open the files of the product on this machine, whether it runs or not."""
