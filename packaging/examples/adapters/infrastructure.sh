#!/bin/sh
# terraform and ansible-playbook under a lock, so that no two hosts change the same things at the same time.
#
#     install infrastructure.sh /usr/local/bin/terraform
#     install infrastructure.sh /usr/local/bin/ansible-playbook
#
# Commands that change nothing take no lock. A change waits for the one before it, for REDLOCK_WAIT (10m). The lock is
# named after the program and the directory, or REDLOCK_AS. If it is lost, the program gets SIGTERM 15 s before others
# can have it: terraform then finishes what it has begun, and saves its state.
program=${0##*/}
real=${REDLOCK_REAL:-/usr/bin/$program}
changes=yes
case $program in
terraform | tofu)
	changes=
	for word in "$@"; do
		case $word in
		-help | --help) changes= && break ;;
		apply | destroy | import | refresh | taint | untaint | state | workspace) changes=yes ;;
		esac
	done
	;;
*)
	for word in "$@"; do
		case $word in
		--check | -C | --syntax-check | --list-*) changes= ;;
		esac
	done
	;;
esac
[ -n "$changes" ] || exec "$real" "$@"
exec redlock run -w "${REDLOCK_WAIT:-10m}" -t 30 --grace 15s --note "$program" "$program/${REDLOCK_AS:-${PWD##*/}}" -- "$real" "$@"
