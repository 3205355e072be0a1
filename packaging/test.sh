#!/bin/bash
# Tests everything, on a Debian machine with Go. It installs other missing programs with
# apt-get. It neither stops nor uses anything that runs on the machine: the tests start
# their own redis-servers, on sockets in temporary directories.
#
#   packaging/test.sh          all tests, in 12 to 16 minutes on 2 cores
#   packaging/test.sh -quick   what finds most mistakes, in about 3 minutes: see quick
#   packaging/test.sh -long    with more rounds, everything with the race detector, all planted
#                              mistakes and models, and a minute for each fuzz target: 3 hours
#   packaging/test.sh -fuzz    only the fuzz targets: ten minutes and one line each
#   packaging/test.sh -servers only the tests with real nodes, the conformance, and a minute
#                              of the nemesis, against the redis-server and valkey-server of
#                              a later Debian (mmdebstrap fetches them)
#   packaging/test.sh -v       with everything that go test prints
#
# It stops at the first step that fails, with that step's output and status 1. Steps with real time run
# one after the other, or beside one that mostly waits as well. Steps that need no real time run beside
# them, while no other step wants the processor. Their output and failures come after the others.
#
# Some checks are evidence about evidence: planted mistakes, models, the release, and the race
# detector where all runs on fake time. A run makes a tenth of them: the commit chooses it, and
# REDLOCKD_TENTH=0 to 9 overrides that. -long makes all of them.
#
# Run it as root to test everything: users of the host, containers, mounts. Otherwise, or
# if a program is missing, it skips tests, and lists them with the reason at the end. In CI
# (CI=true) such a skip is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# What a build for tests has: the race detector, but not in the interpreter of the simulated and
# embedded nodes. Their scripts would take three times as long, and the memory of an interpreter is
# its own. All steps use the same flags, so that everything is built once; with -trimpath, also once
# for all checkouts on this machine.
readonly race='-race -trimpath -gcflags=github.com/yuin/gopher-lua/...=-race=false -gcflags=github.com/alicebob/miniredis/v2/...=-race=false'
readonly staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.8.2
readonly laterdebian=trixie # whose servers are newer
fuzztime=10m
readonly toplevel="LICENSE README.md client cmd daemon go.mod go.sum ipc packaging redlock systemd"

# timeless matches tests of packaging/e2e that build, or check what was built. They need no real time.
# release matches the one of them that builds everything again, for two kinds of processors.
# booted matches the one that boots a machine: it takes a minute or two, and mostly waits.
readonly timeless='^Test(ReleaseRefuses|Lintian|PythonTypes|PythonSdist|NodeTypes|NodeFiles|RubyGem|BuildsOfClientsLeaveNothing)$' release='^TestRelease$' booted='^TestInstalled$'

# realtime matches the tests of package redlock that need real time. An example has no fake time.
# planted matches tests that build and run a package with planted mistakes.
readonly realtime='^TestReal|^Example' planted='^Test(SearchFindsPlantedBugs|ScenesFindMistakes|SimulationFindsMistakes|FindMistakes)$'

# skippable matches skips that are allowed in CI: they are unavoidable, or another step has the test. npm
# would be some hundred packages of Debian, for one test that compares two lists of files.
readonly skippable='npm is needed: |this kind of node lacks |takes minutes with the race detector: |race detector makes Go.s scheduler |needs Linux$'

# ignores_signal NAME tells whether a signal is ignored. Child processes inherit that.
ignores_signal() {
	local ignored=0
	if [[ -e /proc/self/status ]]; then
		ignored=$(sed -n 's/^SigIgn:[[:space:]]*/0x/p' /proc/$BASHPID/status)
	fi
	((ignored >> ($(kill -l "$1") - 1) & 1))
}

# A shell without job control starts programs behind & with SIGINT ignored, and tests send it.
if ignores_signal INT && env --default-signal=INT true 2>/dev/null; then
	exec env --default-signal=INT bash packaging/test.sh "$@"
fi

verbose=0 long=0 quick=0 testtimeout=40m main=main
for flag in "$@"; do
	case $flag in
	-v) verbose=1 ;;
	-quick) quick=1 main=quick ;;
	-long) export REDLOCKD_LONG=1 && long=1 testtimeout=60m fuzztime=1m ;;
	-fuzz) main=fuzz ;;
	-servers) main=other_servers ;;
	*) echo "usage: packaging/test.sh [-quick | -long | -fuzz | -servers] [-v]" >&2 && exit 64 ;;
	esac
done

export LC_ALL=C.UTF-8
# Builds do not record the commit: that needs git, and a checkout that git trusts.
export GOFLAGS="-buildvcs=false ${GOFLAGS-}"
# Without this, every process with the race detector takes a second to end.
export GORACE="atexit_sleep_ms=0 ${GORACE-}"
tmp=$(mktemp -d)
readonly tmp skips=$tmp/skips failures=$tmp/failures durations=$tmp/durations
declare -A beside=() # process groups that run beside the tests, by the function that they call
export REDLOCKD_PACKAGES=$tmp/packages # the packages that packaging/e2e tests
trap 'stop_beside; tell_failures; rm -rf "$tmp"' EXIT
: >"$skips" >"$failures" >"$durations"

# chosen_tenth prints a digit that differs from commit to commit, or from tree to tree without git.
chosen_tenth() {
	local hash
	hash=$(git rev-parse --verify HEAD 2>/dev/null) ||
		hash=$(find . -type f -not -path './.git/*' -print0 | sort -z | xargs -0 sha256sum | sha256sum)
	echo $((16#${hash:0:7} % 10))
}

: "${REDLOCKD_TENTH:=$(chosen_tenth)}"
export REDLOCKD_TENTH

main() {
	((long)) || printf 'tenth %s of the planted mistakes, models and the like: REDLOCKD_TENTH=%s repeats it\n' "$REDLOCKD_TENTH" "$REDLOCKD_TENTH"
	step "programs that the tests need" prerequisites
	step "modules that the builds need" download
	# From here on nothing is downloaded: a module that download does not get is missing in CI.
	export GOPROXY="file://$(go env GOMODCACHE)/cache/download" GOSUMDB=off
	step "top level of the tree" check_toplevel
	step "gofmt" check_gofmt
	step "builds that the tests share" build_all
	start_beside compute
	test_programs
	test_parts
	hurry compute
	await_beside compute
	report_slowest
	report_skips
	printf '\nall passed, in %d s\n' "$SECONDS"
}

# quick is what a contributor runs before each commit. Nothing has the race detector. Go's cache has the
# results of packages that did not change. Tests that start a process for each case are left out.
quick() {
	step "programs that the tests need" prerequisites
	step "top level of the tree" check_toplevel
	step "gofmt" check_gofmt
	step "go vet" plain go vet ./...
	start_beside main_job
	step "all packages, those of processes in part" test_quickly
	await_beside main_job
	report_slowest
	printf '\nall passed, in %d s. Without -quick it also tests programs, packages, other languages, races, and models\n' "$SECONDS"
}

test_quickly() {
	local packages
	packages=$(go list ./... | grep -vxE "$(go list -m)/packaging/(conformance|e2e|model)")
	# shellcheck disable=SC2086 # words
	plain go test -short -vet=off -p 2 -ldflags=-w -v -timeout "$testtimeout" -skip "$planted|$realtime" $packages 2>&1 | filter
}

# main_job runs the transcripts of README, with five nodes in the daemon and with five redis-servers, and
# kills a client.
main_job() {
	step "packaging/e2e: README, and the lock of a killed client" \
		plain_test -run '^Test(Transcripts|ReadmeDev|LockOfKilledClient)$/^README.md$' ./packaging/e2e
}

# test_programs runs the tests in which programs run as they do when they are installed.
test_programs() {
	start_beside machine
	step "packaging/conformance" plain_test ./packaging/conformance
	step "package redlock with real nodes" go_test -parallel 6 -run "$realtime" ./redlock
	await_beside machine # because packaging/e2e measures
	step "packaging/e2e" plain_test -skip "$booted|$timeless|$release" ./packaging/e2e
}

machine() { step "packaging/e2e: the packages in a machine" plain_test -run "$booted" ./packaging/e2e; }

# test_parts runs the tests of all other packages, except those that need no real time. The command,
# the benchmark and the nemesis test other processes, which never have the race detector.
test_parts() {
	local packages
	packages=$(go list ./... | grep -vxE "$(go list -m)/(redlock|cmd/redlock|packaging/(architecture|conformance|e2e|model|sbom))")
	# shellcheck disable=SC2086 # words
	step "the other packages" go_test -p 2 $packages
	start_beside benchmark # both mostly wait for processes
	step "cmd/redlock" plain_test ./cmd/redlock
	await_beside benchmark
	step "packaging/nemesis" in_nemesis plain_test ./...
	((!long)) || step "the last three with the race detector" test_raced
}

benchmark() { step "packaging/bench" in_bench plain_test -parallel 3 ./...; }

# test_raced makes as many rounds as a usual run.
test_raced() {
	export REDLOCKD_LONG=
	go_test ./cmd/redlock
	in_bench go_test -parallel 3 ./...
	in_nemesis go_test ./...
}

# compute runs the steps that need processors and no real time, on the time that the tests leave.
compute() {
	chrt --idle --pid 0 "$BASHPID" 2>/dev/null || renice -n 19 -p "$BASHPID" >/dev/null
	simulate >"$tmp/simulated" 2>&1 & # uses one processor
	local simulating=$! status=0
	builds &
	wait "$!" || status=$?
	wait "$simulating" || status=$?
	cat "$tmp/simulated"
	return "$status"
}

builds() {
	step "packaging/bench and packaging/nemesis: built before their time" build_ahead
	step "go vet" vet
	step "packaging/architecture and packaging/sbom" check_tree
	step "staticcheck" run_staticcheck
	step "builds for darwin and freebsd" build_others
	step "packaging/e2e: lintian, types, what a release refuses" plain_test -run "$timeless" ./packaging/e2e
	! chosen 0 || step "packaging/e2e: a release" plain_test -run "$release" ./packaging/e2e
}

# chosen I tells whether the I-th check of ten is in this run.
chosen() { ((long || $1 == REDLOCKD_TENTH)); }

simulate() {
	step "package redlock on fake time, and the search for broken promises" search
	step "some of it with the race detector" fake_time
	step "the models" models
	((!long)) || step "fuzzing, $fuzztime each" fuzz
}

# step HEADING COMMAND... runs one step. Its output is shown as it comes, and in the end its time and
# that of the processors.
step() {
	local heading=$1 start=$SECONDS TIMEFORMAT='   %0R s, and %0U s + %0S s of the processors'
	shift
	printf '== %s\n' "$heading"
	# Not "if !": it would switch off set -e inside the step.
	set +e
	{ time (set -e; "$@"); } 2>&1
	local status=$?
	set -e
	if ((status != 0)); then
		printf '== FAILED: %s (%d s, status %d)\n' "$heading" $((SECONDS - start)) "$status"
		exit 1
	fi
}

# start_beside FUNCTION starts a function as a process group of its own.
start_beside() {
	set -m
	{
		set +m # otherwise the processes that it starts get groups of their own
		"$1"
	} </dev/null >"$tmp/$1" 2>&1 &
	beside[$1]=$!
	set +m
}

# hurry FUNCTION gives a function that runs beside the tests the same share of the processors as others
# have. If other programs keep this machine busy, an idle share is none.
hurry() {
	local process
	for process in $(ps -eo pgid=,pid= 2>/dev/null | awk -v group="${beside[$1]}" '$1 == group { print $2 }'); do
		chrt --all-tasks --other --pid 0 "$process" 2>/dev/null || true # it has ended, or has a low nice value
	done
}

# await_beside FUNCTION shows its output, and fails if it failed.
await_beside() {
	local status=0
	wait "${beside[$1]}" || status=$?
	unset "beside[$1]"
	cat "$tmp/$1"
	return "$status"
}

stop_beside() {
	local group
	for group in "${beside[@]}"; do
		kill -- "-$group" 2>/dev/null || true
	done
}

# tell_failures prints the failed tests at the very end: the beginning of a long output may be lost.
tell_failures() {
	[[ ! -s $failures ]] || { printf '== FAILED:\n' && cat "$failures"; }
}

# --- prerequisites

# prerequisites and download run alone and first, because downloads beside the tests would be slow.
prerequisites() {
	if is_ci && ((EUID != 0)); then
		echo "in CI this has to run as root: it tests with other users, and boots a container"
		return 1
	fi
	if ignores_signal HUP; then
		echo "SIGHUP is ignored here, and tests send it: start this without nohup, such as with setsid"
		return 1
	fi
	if ignores_signal INT; then
		echo "SIGINT is ignored here, and tests send it: start this in the foreground, or with setsid -f"
		return 1
	fi
	if ! command -v go >/dev/null; then
		echo "go is not installed, or not in PATH: get it from https://go.dev/dl (go.mod says which version)"
		return 1
	fi
	local missing optional package
	missing=$(missing_packages) optional=$(missing_options)
	# shellcheck disable=SC2086 # words
	if [[ -n $missing$optional ]] && ! install_packages $missing $optional; then
		[[ -z $missing ]] || install_packages $missing
		for package in $optional; do
			install_packages "$package" || echo "without $package, what needs it is skipped"
		done
	fi
	missing=$(missing_packages)
	if [[ -n $missing ]]; then
		echo "installed, but something else still takes their place in PATH:" "${missing//$'\n'/ }"
		return 1
	fi
	go version
}

# download gets all modules: those of the three modules here, and those of the tools.
download() {
	persist check_modules
	persist load_tool "$staticcheck"
	persist load_tool "$(sed -n 's/^readonly nfpm=//p' packaging/package.sh)"
}

# check_modules downloads what its checks need.
check_modules() { check_module && in_bench check_module && in_nemesis check_module && in_adapters check_module; }

check_module() { go mod download && go mod verify && go mod tidy -diff; }

# load_tool downloads the source of a program and of its modules. It builds nothing.
load_tool() { plain go install -n "$1" >"$tmp/loaded" 2>&1 || { cat "$tmp/loaded" && return 1; }; }

# persist COMMAND... runs a command up to three times, because a download may fail. In a function
# that it runs, set -e has no effect.
persist() {
	local pause
	for pause in 2 10; do
		if "$@"; then return; fi
		echo "this failed, and is tried again in $pause s: $*"
		sleep "$pause"
	done
	"$@"
}

# missing_packages prints the Debian packages of missing programs.
missing_packages() {
	has_command redis-server || echo redis-server
	{ has_command nc && { nc -h 2>&1 || true; } | grep -q OpenBSD; } || echo netcat-openbsd
	# for the race detector, and (cc) for the shim that steps a redis-server's clock
	{ has_command cc && has_command gcc && echo 'int main(void){return 0;}' | gcc -x c -o /dev/null - 2>/dev/null; } || echo gcc libc6-dev
	# for the clients and examples in other languages
	has_command python3 || echo python3
	[[ -e /usr/lib/python3/dist-packages/setuptools ]] || echo python3-setuptools
	[[ -e /usr/lib/python3/dist-packages/wheel ]] || echo python3-wheel
	[[ -e /usr/lib/python3/dist-packages/pip ]] || echo python3-pip
	has_command mypy || echo mypy
	has_command perl || echo perl
	# for commands on the pages, and accounts of other users
	has_command jq || echo jq
	has_command flock || echo util-linux
	((EUID != 0)) || { has_command useradd && has_command usermod && has_command groupadd; } || echo passwd
	# for the packages: units, manual pages, the .deb and .rpm, the pod; and to boot them
	has_command ip || echo iproute2
	has_command systemd-analyze || echo systemd
	has_command man || echo man-db
	has_command lintian || echo lintian
	has_command rpm || echo rpm
	python3 -c 'import yaml' 2>/dev/null || echo python3-yaml
	has_command systemd-nspawn || echo systemd-container
	has_command dbus-daemon || echo dbus
	# for the test of packaging/release
	has_command git || echo git
	# for the model, and the network cuts of the nemesis
	has_command spin || echo spin
	has_command nft || echo nftables
	has_command ip || echo iproute2
	# for the Go module proxy
	[[ -e /etc/ssl/certs/ca-certificates.crt || ! -e /etc/debian_version ]] || echo ca-certificates
}

# missing_options prints packages for examples in other languages and the status page.
missing_options() {
	local program
	for program in node:nodejs tsc:node-typescript javac:default-jdk-headless ruby:ruby php:php-cli composer:composer chromium:chromium; do
		has_command "${program%:*}" || echo "${program#*:}"
	done
	[[ -e /usr/share/php/Symfony/Component/Lock ]] || echo php-symfony-lock
	[[ -e /usr/share/php/Illuminate/Cache ]] || echo php-illuminate-cache
	compgen -G '/usr/sbin/php-fpm*' >/dev/null || echo php-fpm # 1.7 MB
	php -r 'exit(extension_loaded("zip") ? 0 : 1);' 2>/dev/null || echo php-zip # for Composer
}

has_command() { command -v "$1" >/dev/null; }

install_packages() {
	local as_root=()
	if ! has_command apt-get; then
		echo "missing here: $*. These are Debian's names for it: install it by the means of this system."
		return 1
	fi
	if ((EUID != 0)); then
		if ! has_command sudo; then
			echo "missing here: $*. As root: apt-get install $*"
			return 1
		fi
		as_root=(sudo)
	fi
	echo "installing: $*"
	local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)
	if ! { update_list "${apt[@]}" && persist "${apt[@]}" install -y --no-install-recommends "$@"; } >"$tmp/apt" 2>&1; then
		cat "$tmp/apt"
		echo "could not be installed: $*. As root: apt-get install $*"
		return 1
	fi
}

# update_list APT-GET... updates the list of packages once.
update_list() {
	[[ -e $tmp/updated ]] || persist "$@" update || return
	touch "$tmp/updated"
}

# --- checks without tests

# check_toplevel ignores the files that redlockd -dev makes when it is started here.
check_toplevel() {
	local entry found=()
	for entry in *; do
		case $entry in
		redlockd.sock | redlockd.sock.lock) ;;
		*) found+=("$entry") ;;
		esac
	done
	if [[ ${found[*]} != "$toplevel" ]]; then
		printf 'wanted: %s\nfound:  %s\n' "$toplevel" "${found[*]}"
		return 1
	fi
}

check_gofmt() {
	local unformatted
	unformatted=$(gofmt -l .)
	if [[ -n $unformatted ]]; then
		printf 'to be formatted with gofmt -w:\n%s\n' "$unformatted"
		return 1
	fi
}

vet() {
	plain go vet ./...
	in_bench plain go vet ./...
	in_nemesis plain go vet ./...
	in_adapters plain go vet ./...
}

# run_staticcheck uses the program and the results in the caches of Go and staticcheck.
run_staticcheck() { plain go run "$staticcheck" ./...; }

# raced COMMAND... runs a command of go with the race detector.
raced() {
	local command=$1
	shift
	# shellcheck disable=SC2086 # words
	go "$command" $race "$@"
}

# plain COMMAND... runs it without the race detector, with the settings of the shipped programs,
# so that they are built only once.
plain() { CGO_ENABLED=0 GOFLAGS="-trimpath $GOFLAGS" "$@"; }

# in_bench COMMAND... runs it in the module of the benchmark.
in_bench() { (cd packaging/bench && "$@"); }

# in_nemesis COMMAND... runs it in the module of the nemesis.
in_nemesis() { (cd packaging/nemesis && "$@"); }

# in_adapters COMMAND... runs it in the module of the adapters for Go. packaging/e2e runs its tests.
in_adapters() { (cd packaging/examples/adapters/go && "$@"); }

# build_all builds what all tests need, with the race detector, and the .deb and .rpm.
build_all() {
	make_packages &
	build_packages
	wait
}

# build_packages leaves out the programs: the tests link what they run.
build_packages() {
	local packages
	packages=$(go list -f '{{if ne .Name "main"}}{{.ImportPath}}{{end}}' ./...)
	# shellcheck disable=SC2086 # words
	raced build $packages
}

# make_packages builds the packages once for all tests of packaging/e2e. Its failure is ignored: the
# tests report it.
make_packages() { SOURCE_DATE_EPOCH=1767225600 packaging/package.sh 1.0.0 "$REDLOCKD_PACKAGES" >/dev/null 2>&1 || true; }

# build_ahead fills Go's cache with builds for which tests would wait a minute or two. Its failures
# are ignored: the tests report them.
build_ahead() {
	in_bench plain go test -vet=off -run '^$' ./... >/dev/null 2>&1 || true
	in_nemesis plain go test -vet=off -run '^$' ./... >/dev/null 2>&1 || true
}

# build_others builds a small package for one of the other systems. packaging/architecture checks the types
# of all packages there. A compiler finds no more in Go code without assembly and cgo, and would first
# compile the standard library: only with -long.
build_others() {
	local systems=(darwin/arm64 freebsd/amd64) system
	if ((!long)); then
		system=${systems[REDLOCKD_TENTH % 2]}
		GOOS=${system%/*} GOARCH=${system#*/} plain go build ./redlock/boottime
		return
	fi
	local arch
	for arch in arm64 amd64; do
		GOOS=darwin GOARCH=$arch plain go build -o /dev/null ./cmd/redlockd
		GOOS=darwin GOARCH=$arch plain go vet ./client ./cmd/...
	done
	GOOS=freebsd GOARCH=amd64 plain go build ./...
}

# --- tests

# go_test PACKAGES... shows a line for each package, skipped tests with the reason, measurements,
# and all output of a package that failed. Packages run one after the other, unless -p 2 is given.
# Tests that mostly wait run together (t.Parallel). -ldflags=-w halves the time to link. A step of its
# own runs go vet.
go_test() { raced test -vet=off -p 1 -parallel 4 -ldflags=-w -count=1 -v -timeout "$testtimeout" "$@" 2>&1 | filter "-race "; }

# plain_test is go_test without the race detector.
plain_test() { plain go test -vet=off -p 1 -parallel 4 -ldflags=-w -count=1 -v -timeout "$testtimeout" "$@" 2>&1 | filter; }

# filter FLAGS shortens the output of go test -v, which is one package after the other. FLAGS are those
# that a repetition needs. If a package fails, the last line about it names the tests that failed or still ran. A dump of goroutines is
# cut to one of each kind, those in test code first.
filter() {
	awk -v verbose=$verbose -v skips="$skips" -v failures="$failures" -v durations="$durations" -v quick=$quick -v flags="${1-}" \
		-v environment="$( ((long)) && echo REDLOCKD_LONG=1 || echo "REDLOCKD_TENTH=$REDLOCKD_TENTH")" '
		verbose { print; fflush() }
		/^=== (RUN|CONT) / && $3 !~ /\// { runs[$3] = "" } # the results of subtests come late
		/^=== PAUSE / { delete runs[$3] }
		/^=== / { test = $3; next }
		/^--- / { delete runs[$3] }
		/^--- (PASS|FAIL): / { took[$3] = substr($4, 2) + 0 }
		/^ *--- FAIL: / { failed[++fails] = $3 }
		/^\trunning tests:$/ { listing = 1 }
		listing && /^\t\t/ { runs[$1] = " " $2 }
		/^$/ { listing = 0 }
		/^goroutine [0-9]+ / { dumping = 1 }
		dumping && !/^(ok|FAIL|exit status|\?|---)([ \t]|$)/ { add_to_dump(); next }
		/^ +[^ ]+\.go:[0-9]+: / {
			said[test] = $0; sub(/^ +[^ ]+ /, "", said[test])
			if (!/: measured: | printed:$/ && logged[test]++ < 8) logs[test] = logs[test] "   " $0 "\n"
		}
		/: measured: / { notes = notes "     " said[test] "\n" }
		/^ *--- SKIP: / {
			note = "     skipped: " $3 ": " said[$3] "\n"
			if (quick && said[$3] ~ /^it (starts processes|takes minutes)/) next
			notes = notes note; printf "%s", note >> skips
		}
		!/^ *--- PASS: / { package = package dump() $0 "\n" }
		/^(ok|FAIL|\?)[ \t]+[^ ]*\// || /\[no test files\]$/ {
			if (!verbose && $1 == "FAIL") printf "%s", package
			if (!verbose && $1 == "ok") printf "%s\n%s", $0, notes
			if ($1 == "FAIL") tell($2)
			for (name in took) if (took[name] >= 1) printf "%8.2f s  %s %s\n", took[name], $2, name >> durations
			fflush()
			package = notes = ""; fails = 0
			split("", said); split("", logs); split("", logged); split("", runs); split("", failed); split("", took)
		}
		END { if (!verbose) printf "%s", package }

		# tell prints which tests failed or ran, also for the end of all output. Only there, the first
		# lines that they logged follow, and the command that repeats the first of the tests.
		function tell(package,   i, name, names, most, folder, first) {
			most = 20
			for (i = 1; i <= fails; i++) if (i <= most) names = names ", " failed[i]
			for (name in runs) if (i++ <= most) names = names ", " name runs[name]
			if (i - 1 > most) names = names ", and " i - 1 - most " more"
			names = "   " package ": failed or running at the end: " (names == "" ? "no test, see its output" : substr(names, 3)) "\n"
			printf "%s", names
			printf "%s", names >> failures
			for (i = 1; i <= fails && i <= most; i++) printf "%s", logs[failed[i]] >> failures
			folder = package; sub(/^github.com\/redlockd\/redlockd\//, "", folder)
			first = failed[1]; sub(/\/.*/, "", first)
			if (fails) printf "   again: %s go test -C %s %s-run ^%s$\n", environment, folder, flags, first >> failures
		}

		# add_to_dump counts the goroutines of each kind: in the same state, at the same lines.
		function add_to_dump(   line) {
			if (NF == 0) { count_goroutine(); return }
			block = block $0 "\n"
			line = $0
			sub(/^goroutine [0-9]+/, "", line); sub(/, [0-9]+ minutes/, "", line); sub(/ in goroutine [0-9]+$/, "", line)
			sub(/ \+0x[0-9a-f]+$/, "", line); sub(/\([^()]*\)$/, "", line)
			kind = kind line "\n"
		}

		function count_goroutine() {
			if (block == "") return
			if (!(kind in count)) { kinds[++kindCount] = kind; example[kind] = block }
			count[kind]++
			block = kind = ""
		}

		# dump returns one goroutine of each kind, and begins anew.
		function dump(   text, tests, i, lines, left, k) {
			if (!dumping) return ""
			count_goroutine()
			for (tests = 1; tests >= 0; tests--) for (i = 1; i <= kindCount; i++) {
				k = kinds[i]
				if ((example[k] ~ /_test\.go:/) != tests) continue
				lines += gsub(/\n/, "\n", example[k])
				if (lines > 300) { left += count[k]; continue }
				text = text (count[k] > 1 ? count[k] " goroutines like this one:\n" : "") example[k] "\n"
			}
			if (left) text = text "(" left " other goroutines are left out)\n"
			dumping = kindCount = 0
			split("", kinds); split("", count); split("", example)
			return text
		}'
}

# search runs the tests with simulated nodes: all seeds, rounds and whole crowds. The search with whole
# daemons needs only a few seeds, because each has hundreds of faults.
search() {
	plain_test -timeout 2h -skip "$realtime" ./redlock &&
		plain_test -timeout 2h -run '^TestSearchDaemons$' ./daemon/session -args -daemonseeds 8
}

# fake_time runs a tenth of the same tests with the race detector. It makes them slow, and the order of
# events random, so few seeds and parts of crowds run with it.
fake_time() {
	local tests
	tests=$(grep -ohE '^func Test[^(]*' redlock/*_test.go | sed 's/^func //' | sort | awk -v long=$long -v tenth="$REDLOCKD_TENTH" 'long || NR % 10 == tenth')
	go_test -timeout 2h -skip "$realtime" -run "^(${tests//$'\n'/|})\$" ./redlock
}

# check_tree runs tests that read the tree.
check_tree() { plain_test ./packaging/architecture ./packaging/sbom; }

# models runs the checks of spin, without those that take minutes or gigabytes.
models() { plain_test -timeout 12h ./packaging/model; }

# other_servers tests with servers of a later release of Debian. They run through the loader of
# that release, with its libc; nothing is installed.
other_servers() {
	local root=$tmp/servers server loader libraries
	has_command mmdebstrap || step "mmdebstrap" install_packages mmdebstrap
	step "servers of Debian $laterdebian" mmdebstrap --quiet --variant=extract --include=redis-server,valkey-server "$laterdebian" "$root"
	loader=$(ls "$root"/usr/lib*/ld-linux-*.so.* | head -n 1)
	libraries=$(echo "$root"/usr/lib/*-linux-gnu)
	for server in redis-server valkey-server; do
		printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" "$@"\n' "$loader" "$libraries" "$root/usr/bin/$server" >"$tmp/$server"
		chmod +x "$tmp/$server"
		"$tmp/$server" --version
		REDIS_SERVER=$tmp/$server step "real nodes with $server" real_nodes
		REDIS_SERVER=$tmp/$server step "the nemesis with $server" in_nemesis plain go run . -for 1m
	done
}

real_nodes() {
	raced test -p 1 -count=1 -v -timeout "$testtimeout" -run '^TestReal|^TestConformance' ./redlock ./redlock/redlocktest 2>&1 | filter
}

# fuzz runs all fuzz targets. To build them takes a minute or two, because they are instrumented.
# Without it, the tests of a package run the inputs of its targets that are in the tree.
fuzz() {
	local package packages target targets
	packages=$(grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n 1 dirname | sort -u) # at least one
	for package in ${packages:?without fuzz targets}; do
		plain go test -c -fuzz . -o "$tmp/fuzz.test" "$package"
		targets=$("$tmp/fuzz.test" -test.list '^Fuzz') # at least one
		for target in ${targets:?none in $package}; do
			printf '%s %s: ' "$package" "$target"
			fuzz_target "$package" "$target" >"$tmp/fuzz" || { cat "$tmp/fuzz" && return 1; }
			grep '^fuzz: ' "$tmp/fuzz" | tail -n 1
		done
	done
}

# fuzz_target PACKAGE TARGET does what go test -fuzz does, except two things that would use up
# a short time: it does not start with all inputs of earlier runs, and does not minimize new
# ones for a minute. Sometimes the end of the time is reported as a failure of the target
# (go.dev/issue/75804, until Go 1.27). A real failure has an input, in the package's testdata.
fuzz_target() {
	(cd "$1" && "$tmp/fuzz.test" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$fuzztime" -test.fuzzminimizetime 10x -test.parallel 1 \
		-test.fuzzcachedir "$tmp/fuzzing/$1" 2>&1) | tee "$tmp/fuzzed" ||
		{ grep -q 'context deadline exceeded' "$tmp/fuzzed" && ! grep -q 'Failing input' "$tmp/fuzzed"; }
}

# report_slowest shows where the time went, without the time that a parallel test waits for its turn.
report_slowest() {
	printf '== the ten slowest tests\n'
	sort -rn "$durations" | sed -n 1,10p # not head: sort would get SIGPIPE
}

is_ci() { [[ ${CI-} == true ]]; }

# report_skips lists skipped tests. In CI it fails, unless they are skippable.
report_skips() {
	[[ -s $skips ]] || return 0
	printf '== skipped tests\n'
	cat "$skips"
	if is_ci && grep -vE "$skippable" "$skips" >"$tmp/missed"; then
		printf '== FAILED: in CI these must not be skipped: run as root, with all programs that they need\n'
		cat "$tmp/missed"
		exit 1
	fi
}

$main
