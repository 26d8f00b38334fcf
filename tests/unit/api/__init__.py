"""The management API in the process of the test, with a stand-in for the supervisor."""
