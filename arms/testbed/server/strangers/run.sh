#!/usr/bin/env bash
# Public clients against the embedded engine: the OpenAI Python client and the
# programs of cache-pressure, on an engine that is well and on one that is not.
# Needs Go, Python 3.12 or newer with venv, and a package index for pip.
# Environment: PYTHON, the interpreter; KVLADDER, a program already built.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../../.." && pwd)
venv=$root/.cache/strangers/venv
work=$root/.cache/strangers/run
export no_proxy=127.0.0.1 NO_PROXY=127.0.0.1 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PIP_DISABLE_PIP_VERSION_CHECK=1

# agent-sim and abort-sim of cache-pressure 0.6.3 nest quotes in an f-string.
new_enough() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; }

find_python() {
	local p
	for p in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python3 \
		/usr/local/bin/python3.1[2-9] /opt/*/bin/python3.1[2-9] "$HOME"/.local/share/uv/python/*/bin/python3.1[2-9]; do
		if new_enough "$p"; then echo "$p"; return; fi
	done
	echo "error: no Python 3.12 or newer with venv and ensurepip was found" >&2
	echo "hint: name one in PYTHON" >&2
	return 1
}

pid=
stop() { # ends the server and returns its status
	local p=$pid status=0 i
	pid=
	[ -n "$p" ] || return 0
	kill "$p" 2>/dev/null || true
	for i in $(seq 100); do
		kill -0 "$p" 2>/dev/null || break
		sleep 0.1
	done
	kill -KILL "$p" 2>/dev/null || true
	wait "$p" || status=$?
	return $status
}
passed=0 failed=0 counted=
finish() { # whatever happened: no server left, one closing line
	local status=$?
	stop || true
	if [ -z "$counted" ]; then
		echo "$passed passed, $((failed + 1)) failed"
		[ "$status" -ne 0 ] || status=1
	fi
	exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

start() { # name, flags: starts a server; sets pid and url
	local name=$1 i
	shift
	"$kvladder" testbed serve --host 127.0.0.1 --port 0 "$@" >"$work/$name.out" 2>"$work/$name.err" &
	pid=$!
	for i in $(seq 600); do
		url=$(sed -n 's/^listening on //p' "$work/$name.out")
		[ -z "$url" ] || return 0
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.1
	done
	echo "error: the engine of $name.out does not listen; its last words:" >&2
	tail -n 5 "$work/$name.err" >&2
	return 1
}

note() { # name, status, detail: one check made here
	if [ "$2" -eq 0 ]; then passed=$((passed + 1)); echo "ok - $1: $3"
	else failed=$((failed + 1)); echo "not ok - $1: $3"; fi
}

check() { # number of checks, command: counts its lines
	local want=$1 status=0 good bad
	shift
	"$venv/bin/python" "$@" 2>&1 | tee "$work/check.log" || status=$?
	good=$(grep -c '^ok - ' "$work/check.log" || true)
	bad=$(grep -c '^not ok - ' "$work/check.log" || true)
	passed=$((passed + good)) failed=$((failed + bad))
	if [ $((good + bad)) -ne "$want" ] || { [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; }; then
		note "$(basename "$1")" 1 "made $((good + bad)) of $want checks, exit status $status"
	fi
}

mkdir -p "$work"
if ! cmp -s "$here/requirements.txt" "$venv/requirements.txt"; then
	python=$(find_python)
	rm -rf "$venv"
	"$python" -m venv "$venv"
	for try in 1 2 3; do # an index may be slow to answer
		if "$venv/bin/python" -m pip install --quiet --timeout 60 --retries 5 -r "$here/requirements.txt"; then break; fi
		if [ "$try" -eq 3 ]; then
			echo "error: the public clients could not be installed from the package index" >&2
			exit 1
		fi
		sleep 5
	done
	cp "$here/requirements.txt" "$venv/requirements.txt"
fi
kvladder=${KVLADDER:-$root/bin/kvladder}
if [ -z "${KVLADDER:-}" ]; then
	make -s -C "$root" build
fi

echo "== an engine that is well"
start well
check 9 "$here/openai_client.py" "$url"
check 6 "$here/cache_pressure_tools.py" "$url" "$work" "$work/well.err"
status=0; stop || status=$?
note "stops when asked" "$status" "exit status $status"
panics=$(grep -c -E '^(panic:|fatal error:)|http: panic' "$work/well.err" || true)
note "no panic in its log" "$panics" "$panics lines"

echo "== an engine without a prefix cache: what looks for reuse turns red"
start without --no-enable-prefix-caching
check 1 "$here/openai_client.py" "$url" --must-fail
check 4 "$here/cache_pressure_tools.py" "$url" "$work" "$work/without.err" --must-fail
stop || true

counted=yes
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
