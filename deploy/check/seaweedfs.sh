#!/bin/sh
# Starts as the image of SeaweedFS does for `mini`: S3 on port 8333, and the buckets of S3_BUCKET.
set -eu
/opt/check/bin/moto_server -H 0.0.0.0 -p 8333 &
server=$!
trap 'kill $server' TERM
/opt/check/bin/python - "$S3_BUCKET" <<'PYTHON'
import sys, time, urllib.request
for name in sys.argv[1].split(","):
    for _ in range(600):
        try:
            urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:8333/{name}", method="PUT"))
            break
        except OSError:
            time.sleep(0.1)
PYTHON
touch /run/ready
wait $server
