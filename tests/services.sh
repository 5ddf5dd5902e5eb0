#!/bin/sh
# Programs outside of Python that tests marked "services" need: found, or installed by Debian's apt, or reported as missing.
# A row: the command that shows that the program is there, and the Debian packages that bring it.
set -u

ROWS='
chromium chromium fonts-dejavu-core
psql postgresql
java default-jre-headless
mmdebstrap mmdebstrap
'

updated=no
install() {
  [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null || return 1
  if [ "$updated" = no ]; then
    apt-get -qq update || return 1
    updated=yes
  fi
  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@" > /dev/null
}

echo "$ROWS" | while read -r program packages; do
  [ -n "$program" ] || continue
  if command -v "$program" > /dev/null; then
    echo "services: $program is there"
  elif echo "services: installing $packages"; install $packages && command -v "$program" > /dev/null; then
    echo "services: $program is installed"
  else
    echo "services: SKIPPED $program: not found, and apt-get cannot install it; its tests are skipped"
  fi
done
