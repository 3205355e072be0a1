#!/bin/bash
# locked.sh NAME STEPS [OPTION=VALUE ...]: works under a lock, from bash, with nc as a
# coprocess. Exit status: 0 done, 1 held by another process, 64 usage, 69 no redlockd or
# no quorum, 70 another refusal, 75 the lock was lost, 77 not allowed.
# (To run a command under a lock, `redlock run` is enough.)

# work is what the lock protects. It is killed when the lock is lost. Its storage should
# refuse a fencing token ($fence) that is smaller than the largest it has seen.
work() {
	echo "holding $name, fencing token $fence"
	for ((step = 1; step <= steps; step++)); do
		sleep 0.1
		echo "step $step"
	done
}

fail() {
	echo "$0: $2" >&2
	exit "$1"
}

if (($# < 2)); then
	echo "usage: $0 NAME STEPS [OPTION=VALUE ...]" >&2
	exit 64
fi
name=$1 steps=$2 answer=
shift 2

quoted=$name # as the protocol escapes names
for pair in %=%25 ' =%20' ==%3D ,=%2C $'\t=%09' $'\n=%0A'; do
	quoted=${quoted//"${pair:0:1}"/"${pair:2}"}
done

# The lock is held as long as nc runs. nc -N runs until its input is closed: until this
# script and its work have ended, for any reason.
coproc REDLOCKD { exec nc -N -U "${REDLOCK_SOCKET:-/run/redlockd/redlockd.sock}"; }
{ exec {from}<&"${REDLOCKD[0]}" {to}>&"${REDLOCKD[1]}"; } 2>/dev/null || fail 69 "redlockd is not there"
trap '' PIPE # a read notices the end of nc

echo "LOCK $quoted $*" >&"$to"
# A line before the answer is an event: BACK, after a restart of redlockd.
until [[ $answer == OK* || $answer == ERR* ]]; do
	IFS= read -r answer <&"$from" || fail 69 "redlockd does not answer"
done
case $answer in
'OK '*) ;;
'ERR HELD '*) fail 1 "$answer" ;;
'ERR NOQUORUM '* | 'ERR SHUTDOWN '*) fail 69 "$answer" ;;
'ERR DENIED '* | 'ERR LIMIT '*) fail 77 "$answer" ;;
*) fail 70 "$answer" ;;
esac
fence=${answer#* fence=} fence=${fence%% *}

# The work runs in a process group of its own, and releases the lock itself. This shell
# reads the lines of redlockd: the answer to UNLOCK, or LOST.
# shellcheck disable=SC2317 # the trap calls it
stop() {
	[[ -z $working ]] || { kill -KILL -- "-$working" && wait "$working"; } 2>/dev/null
}
trap stop EXIT # also after SIGTERM and Ctrl-C
set -m
{
	trap - PIPE EXIT
	work
	status=$?
	echo "UNLOCK $quoted" >&"$to"
	exit $status
} &
working=$!
while IFS= read -r line <&"$from"; do
	case $line in
	LOST*) break ;;
	OK*)
		wait "$working"
		status=$? working=
		((status == 0)) && echo "done"
		exit $status
		;;
	ERR*) fail 75 "$line" ;; # lost just before UNLOCK
	esac # BACK: redlockd was restarted, and the lock is kept. BYE: it stops soon
done
fail 75 "stopped: ${line:-redlockd is gone, and nobody keeps the lock}"
