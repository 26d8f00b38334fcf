"""`scripts/bench api`: the management API with many proxies configured, beside what a user would write instead.

The yardstick (`yardstick.py`) is FastAPI under uvicorn with everything in a dictionary: no disk, no audit, no
permissions.
"""
