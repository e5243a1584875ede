#!/bin/sh
# `mc ready local`: whether the store takes requests.
exec test -e /run/ready
