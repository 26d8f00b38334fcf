"""What any number of proxies, accounts and plans name: lists, pools with their upstreams, policies."""
