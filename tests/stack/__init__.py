"""Tests that talk to a deployed stack through one endpoint URL, and judge by the provider's record.

They deploy a stack of their own, on the local emulator or, with AWS_ENDPOINT_URL, on one that runs
already (LocalStack, say). `STACK=up` uses the one that `make up` started instead.
"""
