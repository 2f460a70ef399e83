#!/usr/bin/env bash
# Print JAVA_HOME of a Java 17 or newer, installing one from the distribution if there is none. java.sh VERSION requires this
# version or a newer one.
#
# Looks at JAVA_HOME, at java on PATH, at /usr/lib/jvm, at .jdk/ beside the checkout's venv; then installs as root with apt-get,
# or without root unpacks the package and its dependencies into .jdk/. Everything but the answer goes to stderr.
set -euo pipefail  # so no pipe below may end in a reader that stops early

root=$(cd "$(dirname "$0")/.." && pwd)
jdk="$root/.jdk"
minimum=${1:-17}
packages=(openjdk-17-jre-headless openjdk-21-jre-headless openjdk-25-jre-headless)
failed="No Java $minimum or newer was found or could be installed. Install a Java runtime (Debian: apt-get install openjdk-$minimum-jre-headless) or set JAVA_HOME."

major() { # the major version of a java program; 0 if it does not run
    local line
    line=$("$1" -version 2>&1) && [[ $line =~ \ version\ \"([0-9]+) ]] && echo "${BASH_REMATCH[1]}" || echo 0
}

home_of() { # print the home of a java program that is new enough
    [ -x "$1" ] && [ "$(major "$1")" -ge "$minimum" ] || return 1
    dirname "$(dirname "$(readlink -f "$1")")"
}

offered() { # the first of our packages that the distribution has
    local name
    for name in "${packages[@]}"; do
        [[ $name =~ [0-9]+ ]] && [ "${BASH_REMATCH[0]}" -ge "$minimum" ] || continue
        if [[ $(apt-cache policy "$name" 2>/dev/null) == *"Candidate: "[0-9]* ]]; then
            echo "$name"
            return
        fi
    done
    return 1
}

needed() { # a package, and what it needs that is not installed
    { echo "$1"; apt-get install --simulate --no-install-recommends "$1" | sed -n 's/^Inst \([^ ]*\).*/\1/p'; } | sort -u
}

install_as_root() {
    local name
    name=$(offered) || { apt-get update -q >&2; name=$(offered); } || return 1
    DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$name" >&2 ||
        { apt-get update -q >&2 && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$name" >&2; }
}

unpack_without_root() {
    local name archive link target archives
    name=$(offered) || return 1
    archives=$(mktemp -d)
    (cd "$archives" && apt-get download -q $(needed "$name") >&2) || return 1
    mkdir -p "$jdk"
    for archive in "$archives"/*.deb; do dpkg -x "$archive" "$jdk" || return 1; done
    rm -rf "$archives"
    # The package keeps its settings in /etc and links to them: point those links at the unpacked copies.
    find "$jdk" -type l -lname '/etc/*' | while read -r link; do
        target=$(readlink "$link")
        [ ! -e "$jdk$target" ] || ln -sfn "$jdk$target" "$link"
    done
}

find_java() {
    local program
    for program in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java || true)" {,"$jdk"}/usr/lib/jvm/*/bin/java; do
        if [ -n "$program" ] && home_of "$program"; then return; fi
    done
    return 1
}

if find_java; then exit; fi
if command -v apt-get >/dev/null; then
    if [ "$(id -u)" = 0 ]; then install_as_root || true; else unpack_without_root || true; fi
    if find_java; then exit; fi
fi
echo "$failed" >&2
exit 1
