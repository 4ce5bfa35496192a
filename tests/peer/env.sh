# Sourced by the other scripts. V=4 (Apache RocketMQ 4.9.7) or 5 (5.5.0). All state lives under $PEER_WORK.
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PEER=${PEER_WORK:-${XDG_CACHE_HOME:-$HOME/.cache}/rocketmq-peer}
V=${V:-4}
LIB=$PEER/lib$V
export ROCKETMQ_HOME=$PEER/home$V
# Our programs, compiled into a folder named after what they say.
CLASSES=$PEER/programs$V/$(cat "$HERE"/java/src/peer/*.java "$HERE"/java/conf/logback.xml | sha256sum | cut -c1-16)
OPENS="--add-opens=java.base/java.nio=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED --add-opens=java.base/java.lang=ALL-UNNAMED --add-opens=java.base/java.util=ALL-UNNAMED --add-opens=java.base/jdk.internal.misc=ALL-UNNAMED --add-opens=java.base/jdk.internal.ref=ALL-UNNAMED --add-exports=java.base/jdk.internal.ref=ALL-UNNAMED --add-exports=java.base/sun.nio.ch=ALL-UNNAMED -Dio.netty.tryReflectionSetAccessible=true"
JCOMMON="$OPENS -Duser.home=$PEER/home$V -Drocketmq.home.dir=$ROCKETMQ_HOME -Drmq.log.level=${LOGLEVEL:-WARN} -Drocketmq.client.logRoot=$PEER/logs/$V/client -Dfile.encoding=UTF-8"
mkdir -p "$PEER/run" "$PEER/logs/$V" "$ROCKETMQ_HOME/conf"
wait_port() { # port pid seconds -> milliseconds waited
  python3 - "$1" "$2" "$3" <<'PY'
import os, socket, sys, time
port, pid, limit = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
start = time.time()
while time.time() - start < limit:
    if not os.path.exists(f"/proc/{pid}"):
        print("DIED"); sys.exit(1)
    with socket.socket() as s:
        s.settimeout(0.2)
        try:
            s.connect(("127.0.0.1", port)); print(int((time.time() - start) * 1000)); sys.exit(0)
        except OSError:
            time.sleep(0.005)
print("TIMEOUT"); sys.exit(1)
PY
}
