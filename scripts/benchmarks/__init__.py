"""The benchmark: the product and its peers measured side by side, on loopback, in one run.

Every measure runs ours and the peers in turn, several rounds, and takes medians, so that a machine that is slow for a
minute is slow for all of them. CPU is that of the proxy's processes alone, read from `/proc`; the load generator and
the origin share the machine but not the figure. Memory is USS, what the process would give back if it ended.

The product is driven through its public interface only: `proxyfleet serve`, its environment, and its API.
"""
