#!/bin/bash
# usage: V=4|5 ./setup.sh     fetches the official jars with Maven and compiles our programs; safe to run again
. "$(dirname "$0")/env.sh"
if [ ! -d "$LIB" ]; then
    mvn -q -f "$HERE/pom$V/pom.xml" dependency:copy-dependencies -DoutputDirectory="$LIB.new" && mv "$LIB.new" "$LIB" ||
        { rm -rf "$LIB.new"; echo "mvn failed"; exit 1; }
fi
for n in broker namesrv tools; do cp "$HERE/java/conf/logback.xml" "$ROCKETMQ_HOME/conf/logback_$n.xml"; done
if [ ! -d "$CLASSES" ]; then
    mkdir -p "$CLASSES.new" && cp "$HERE/java/conf/logback.xml" "$CLASSES.new" || exit 1
    # Exercise asks for what 5.5.0 no longer has.
    SOURCES=$(ls "$HERE"/java/src/peer/*.java | { [ "$V" = 5 ] && grep -v /Exercise.java || cat; })
    javac -nowarn -cp "$LIB/*" -d "$CLASSES.new" $SOURCES && mv "$CLASSES.new" "$CLASSES" ||
        { rm -rf "$CLASSES.new"; echo "javac failed"; exit 1; }
fi
echo "peer v$V ready"
