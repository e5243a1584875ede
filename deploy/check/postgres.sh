#!/bin/sh
# Starts as the image of PostgreSQL does: a first start makes the database and its owner out of the environment.
set -eu
data=/var/lib/postgresql/18/docker
if [ ! -s "$data/PG_VERSION" ]; then
    install -d -o postgres -m 700 "$data"
    printf %s "$POSTGRES_PASSWORD" >/run/password
    chown postgres /run/password
    runuser -u postgres -- initdb -D "$data" -U "$POSTGRES_USER" --pwfile /run/password \
        --auth-local=trust --auth-host=scram-sha-256 >/run/initdb.log
    rm /run/password
    echo "host all all all scram-sha-256" >>"$data/pg_hba.conf"
    echo "CREATE DATABASE \"$POSTGRES_USER\"" | runuser -u postgres -- postgres --single -D "$data" postgres >/run/initdb.log
fi
# setpriv becomes the program, which then hears the signal to stop; runuser would stay before it.
exec setpriv --reuid postgres --regid postgres --clear-groups postgres -D "$data" -c 'listen_addresses=*' -k /tmp
