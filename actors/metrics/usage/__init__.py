"""What accounts use, by the hour, and what of it is said of quotas; in a fleet also what other nodes count.

| module | what |
|---|---|
| `service` | reads what processes have counted, and books it |
| `account_usage` | the file of hours and sums |
| `changes` | how far an account may go, and what is announced of it |
| `reporter` | says to the fleet's database what was used here, and gets leases of quotas |
| `limits_reporter` | the same of connections, requests and bandwidth |
"""
