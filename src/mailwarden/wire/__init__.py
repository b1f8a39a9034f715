"""The records of submitEmail, and strict JSON for every API; each feature has its own records in `requests.py`."""
