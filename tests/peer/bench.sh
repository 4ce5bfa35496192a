#!/bin/bash
# usage: ./bench.sh --namesrv 127.0.0.1:9876 --mode sync|async|oneway|batch|txn|consume|ordered|pull|e2e --threads 16
#            --size 128 --count 200000 --topic T [--pid BROKERPID] ...
# V=4|5 picks the jars of the client (4.9.7 or 5.5.0). Prints one line of JSON; errors go to logs/bench.err.
. "$(dirname "$0")/env.sh"
[ -d "$CLASSES" ] || "$HERE/setup.sh" >&2 || exit 1
java -Xms1g -Xmx1g -XX:+UseG1GC $OPENS -Duser.home="$PEER/run/benchhome" -Drocketmq.client.logRoot="$PEER/logs/client" \
    -Drocketmq.client.logLevel=WARN -Drocketmq.client.logFileMaxIndex=1 -cp "$CLASSES:$LIB/*" peer.Bench "$@" \
    2>>"$PEER/logs/bench.err" | grep "^{"
