"""The local stack and the demo.

`stack` runs the real thing on loopback, without Docker, root or an AWS account: Valkey, an AWS
emulator that runs the native functions, the SES simulator, and the template deployed by `sam`.
`demo` sends mail through it; `report` judges what arrived; `chart` and `page` draw it.

The Makefile is the way in: `make demo`, `make up`, `make down`, `make invoke`.
"""
