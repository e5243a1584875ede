#!/bin/sh
# The store's health check: whether it takes requests.
exec test -e /run/ready
