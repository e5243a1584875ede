#!/bin/sh
# `minio server FOLDER`: a folder in it is a bucket, as there.
set -eu
/opt/check/bin/moto_server -H 0.0.0.0 -p 9000 &
server=$!
trap 'kill $server' TERM
for folder in "$2"/*/; do
    /opt/check/bin/python - "$(basename "$folder")" <<'PYTHON'
import sys, time, urllib.request
for _ in range(600):
    try:
        urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:9000/{sys.argv[1]}", method="PUT"))
        break
    except OSError:
        time.sleep(0.1)
PYTHON
done
touch /run/ready
wait $server
