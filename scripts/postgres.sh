# A private PostgreSQL for tests; source it, call postgres_start, and postgres_stop at the end.
#
# It exports
#   TENANT_CONTROL_TEST_POSTGRES      URL of a role that may create databases and that row-level security holds back
#   TENANT_CONTROL_TEST_POSTGRES_BIN  folder of initdb, pg_ctl and psql, for tests that start a server of their own
#   TENANT_CONTROL_TEST_POSTGRES_CA   certificate that signed the server's, which is for "localhost" alone
#   TENANT_CONTROL_TEST_PGBOUNCER     the pooler that tests put in front of it
# shellcheck shell=bash

postgres_folder=""
postgres_as=()

# Prints the pooler's program. Debian keeps it where only root looks.
pgbouncer_find() {
  PATH="$PATH:/usr/sbin" command -v pgbouncer
}

# Prints the folder of the newest installed server.
postgres_find() {
  local found
  found=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
  if [ -z "$found" ] && command -v initdb >/dev/null; then
    found=$(dirname "$(command -v initdb)")
  fi
  [ -n "$found" ] && [ -x "$found/initdb" ] && printf '%s\n' "$found"
}

# Installs Debian's packages: a name for people, then what to install.
postgres_install() {
  local name=$1
  shift
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "$name is missing and could not be installed: install the package $1, then run ./test again" >&2
    return 1
  fi
  echo "$name is missing: installing Debian's package"
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null || {
    echo "$name could not be installed with apt-get" >&2
    return 1
  }
}

postgres_start() {
  local bin
  bin=$(postgres_find) || { postgres_install PostgreSQL postgresql openssl && bin=$(postgres_find); }
  TENANT_CONTROL_TEST_PGBOUNCER=$(pgbouncer_find) ||
    { postgres_install PgBouncer pgbouncer && TENANT_CONTROL_TEST_PGBOUNCER=$(pgbouncer_find); }
  export TENANT_CONTROL_TEST_PGBOUNCER
  postgres_folder=$(mktemp -d "${TMPDIR:-/tmp}/tenant-control-postgres.XXXXXX")
  # initdb refuses to run as root.
  if [ "$(id -u)" -eq 0 ]; then
    local user=nobody
    id postgres >/dev/null 2>&1 && user=postgres
    chown "$user" "$postgres_folder"
    postgres_as=(setpriv "--reuid=$user" "--regid=$(id -g "$user")" --clear-groups)
  fi
  export TENANT_CONTROL_TEST_POSTGRES_BIN=$bin
  postgres_init "$bin" >"$postgres_folder/init.log" 2>&1 || { cat "$postgres_folder/init.log" >&2; return 1; }
  postgres_listen "$bin"
  "${postgres_as[@]}" "$bin/psql" -q -h "$postgres_folder" -p "$postgres_port" -U postgres postgres \
    -c 'CREATE ROLE tc_test LOGIN NOSUPERUSER NOBYPASSRLS CREATEDB'
  export TENANT_CONTROL_TEST_POSTGRES="postgres://tc_test@127.0.0.1:$postgres_port/postgres?sslmode=disable"
  export TENANT_CONTROL_TEST_POSTGRES_CA="$postgres_folder/ca.pem"
  # The tests may run as another user than the server.
  chmod 755 "$postgres_folder"
  echo "PostgreSQL $("$bin/postgres" --version | awk '{print $3}') on port $postgres_port"
}

# An English collation, not C, so that a column that forgot to ask for C sorts wrongly in a test.
postgres_init() {
  local bin=$1 folder=$postgres_folder
  "${postgres_as[@]}" "$bin/initdb" -D "$folder/data" -U postgres -A trust -E UTF8 \
    --locale=C.UTF-8 --locale-provider=icu --icu-locale=en-US ||
    { rm -rf "$folder/data" && "${postgres_as[@]}" "$bin/initdb" -D "$folder/data" -U postgres -A trust -E UTF8 --locale=C.UTF-8; }
  postgres_certify "$folder"
  # Nothing here outlives the tests, so nothing needs to wait for the disk.
  cat >>"$folder/data/postgresql.conf" <<CONF
listen_addresses = '127.0.0.1'
unix_socket_directories = '$folder'
max_connections = 300
fsync = off
synchronous_commit = off
full_page_writes = off
ssl = on
ssl_cert_file = '$folder/server.pem'
ssl_key_file = '$folder/server.key'
CONF
}

postgres_certify() {
  local folder=$1 new=(openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)
  "${new[@]}" -x509 -days 2 -subj "/CN=Tenant Control test CA" -keyout "$folder/ca.key" -out "$folder/ca.pem"
  "${new[@]}" -subj "/CN=localhost" -keyout "$folder/server.key" -out "$folder/server.csr"
  openssl x509 -req -days 2 -in "$folder/server.csr" -CA "$folder/ca.pem" -CAkey "$folder/ca.key" -set_serial 2 \
    -extfile <(echo "subjectAltName=DNS:localhost") -out "$folder/server.pem"
  [ "$(id -u)" -ne 0 ] || chown --reference="$folder" "$folder/server.key" "$folder/server.pem"
  chmod 600 "$folder/server.key"
}

# A port that was free a moment ago may be taken now, so starting is tried on several.
postgres_listen() {
  local bin=$1
  for _ in $(seq 20); do
    postgres_port=$((20000 + RANDOM % 12000))
    if "${postgres_as[@]}" "$bin/pg_ctl" -D "$postgres_folder/data" -l "$postgres_folder/server.log" -w -t 60 \
      -o "-p $postgres_port" start >/dev/null 2>&1; then
      return
    fi
  done
  echo "PostgreSQL did not start:" >&2
  tail -n 20 "$postgres_folder/server.log" >&2
  return 1
}

postgres_stop() {
  [ -n "$postgres_folder" ] || return 0
  "${postgres_as[@]}" "$TENANT_CONTROL_TEST_POSTGRES_BIN/pg_ctl" -D "$postgres_folder/data" -m immediate stop \
    >/dev/null 2>&1 || true
  rm -rf "$postgres_folder"
  postgres_folder=""
}
