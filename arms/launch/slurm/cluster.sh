#!/bin/sh
# A Slurm cluster of one node on this machine, for tests: the daemons of the packages
# slurm-wlm and munge, with a configuration of their own in FOLDER and no privileges asked of
# the machine beyond root's.
#
#   cluster.sh start FOLDER    starts munged, slurmctld and slurmd, waits until the node is idle
#                              and prints the path of the configuration, for $SLURM_CONF
#   cluster.sh controller stop|start FOLDER    takes the controller away, gives it back
#   cluster.sh stop FOLDER     ends what start has started
#
# Only processes whose pid files are in FOLDER are ever ended.
set -eu

# pid NAME: of a daemon, if it runs
pid() { [ -s "$dir/$1.pid" ] && kill -0 "$(cat "$dir/$1.pid")" 2>/dev/null && cat "$dir/$1.pid"; }

end() { # NAME
	p=$(pid "$1") || return 0
	kill "$p" 2>/dev/null || return 0
	for _ in $(seq 100); do kill -0 "$p" 2>/dev/null || return 0; sleep 0.1; done
	kill -9 "$p" 2>/dev/null || true
}

free() { # a port that nobody listens on
	while :; do
		p=$((20000 + $(od -An -N2 -tu2 /dev/urandom) % 20000))
		grep -q ":$(printf %04X "$p") 00000000:0000 0A" /proc/net/tcp || { echo "$p"; return; }
	done
}

controller() {
	SLURM_CONF="$dir/slurm.conf" slurmctld -f "$dir/slurm.conf"
	for _ in $(seq 100); do
		SLURM_CONF="$dir/slurm.conf" scontrol ping 2>/dev/null | grep -q 'is UP' && return 0
		sleep 0.1
	done
	echo "slurmctld does not answer: $(tail -n 3 "$dir/slurmctld.log")" >&2
	return 1
}

start() {
	for program in slurmctld slurmd munged sbatch; do
		command -v "$program" >/dev/null || { echo "$program is not on the path: install slurm-wlm and munge" >&2; exit 1; }
	done
	mkdir -p "$dir/state" "$dir/spool"
	host=$(hostname -s)
	cpus=$(nproc)
	# an own munge: its socket and key are in the folder
	dd if=/dev/urandom of="$dir/munge.key" bs=128 count=8 2>/dev/null
	chmod 600 "$dir/munge.key"
	munged --force --key-file "$dir/munge.key" --socket "$dir/munge.socket" --pid-file "$dir/munged.pid" --log-file "$dir/munged.log" --seed-file "$dir/munge.seed"
	cat > "$dir/slurm.conf" <<EOF
ClusterName=kvladder
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(free)
SlurmdPort=$(free)
SlurmUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_min_interval=0
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
KillWait=5
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cpus
PartitionName=test Nodes=$host Default=YES MaxTime=INFINITE State=UP
EOF
	controller
	SLURM_CONF="$dir/slurm.conf" slurmd -f "$dir/slurm.conf"
	for _ in $(seq 200); do
		if SLURM_CONF="$dir/slurm.conf" sinfo --noheader --format %T 2>/dev/null | grep -q idle; then
			echo "$dir/slurm.conf"
			return 0
		fi
		sleep 0.1
	done
	echo "the node is not idle: $(SLURM_CONF="$dir/slurm.conf" sinfo --noheader --Node --long 2>&1 | tail -n 1); $(tail -n 3 "$dir/slurmd.log")" >&2
	stop
	exit 1
}

stop() {
	SLURM_CONF="$dir/slurm.conf" scancel --user "$(id -un)" 2>/dev/null || true
	end slurmd
	end slurmctld
	end munged
}

usage() { sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }

case "${1-}" in
start|stop) [ $# -eq 2 ] || usage; dir=$2; "$1" ;;
controller) [ $# -eq 3 ] || usage; dir=$3
	case "$2" in start) controller ;; stop) end slurmctld ;; *) usage ;; esac ;;
*) usage ;;
esac
