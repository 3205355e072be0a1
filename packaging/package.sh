#!/bin/bash
# Builds the packages: a .deb and a .rpm with static binaries, manual pages and
# completions. It needs Go, and its module proxy for nfpm.
#
#   packaging/package.sh VERSION DIR [ARCH]    ARCH: amd64 or arm64; this machine's
#
# DIR then has redlock, redlockd and the packages; redlockd.cdx.json, a list of the built-in
# modules (CycloneDX); THIRD-PARTY, with their licences; and SHA256SUMS of all these files.
# The same sources and VERSION give the same bytes on every machine.
# SOURCE_DATE_EPOCH dates the files in the packages.
set -euo pipefail

readonly nfpm=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.0
readonly author='The redlockd authors <redlockd@users.noreply.github.com>'
readonly module=github.com/redlockd/redlockd

usage() {
	echo "usage: packaging/package.sh VERSION DIR [amd64|arm64]" >&2
	exit 64
}

(($# == 2 || $# == 3)) || usage
readonly version=$1 arch=${3:-$(go env GOHOSTARCH)}
[[ $version =~ ^[0-9][0-9A-Za-z.+~]*$ ]] || { echo "VERSION: wanted such as 1.2.3, found \"$version\"" >&2 && usage; }
[[ $arch == amd64 || $arch == arm64 ]] || usage
mkdir -p "$2"
out=$(cd "$2" && pwd)
readonly out
cd "$(dirname "${BASH_SOURCE[0]}")/.."
stage=$(mktemp -d)
readonly stage
trap 'rm -rf "$stage"' EXIT
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1767225600)}
export LC_ALL=C.UTF-8 TZ=UTC
# The programs are static, and so are the tools, so that everything is built once.
export CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false ${GOFLAGS-}"

main() {
	go mod verify >/dev/null # the sources are those of go.sum
	build "$arch" "$stage" ./cmd/redlock ./cmd/redlockd
	list_contents
	write_manuals
	write_pages
	write_completions
	write_debian_files
	package deb
	package rpm
	cp "$stage/redlock" "$stage/redlockd" "$stage/redlockd.cdx.json" "$stage/THIRD-PARTY" "$out"
	write_checksums
}

# build PROCESSOR INTO PROGRAMS... builds programs. They contain neither the directory nor the time of the build.
build() {
	local processor=$1 into=$2
	shift 2
	GOOS=linux GOARCH=$processor GOFLAGS='' go build -trimpath -buildvcs=false -o "$into/" \
		-ldflags "-s -w -buildid= -X $module/daemon.version=$version -X main.version=$version" "$@"
}

# list_contents lists the built-in modules. It fails if the licence of one is unknown.
list_contents() {
	go run ./packaging/sbom "$version" "$(date -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)" "$stage" "$stage/redlock" "$stage/redlockd"
}

# redlock ARGS... runs this version of redlock on this machine.
redlock() {
	local native
	native=$(go env GOHOSTARCH)
	if [[ $arch == "$native" ]]; then
		"$stage/redlock" "$@"
		return
	fi
	[[ -x $stage/native/redlock ]] || build "$native" "$stage/native" ./cmd/redlock
	"$stage/native/redlock" "$@"
}

write_manuals() {
	local page
	redlock man | gzip -9n >"$stage/redlock.1.gz"
	go run ./packaging/man "$version" "$(date -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%d)" "$stage"
	for page in redlockd.8 redlockd.hcl.5 redlockd-protocol.7; do
		gzip -9n "$stage/$page"
	done
}

# write_pages copies the pages. The packages have them all in one directory, so the links
# between them lose their folders. Links to files that are not packaged lead to the repository.
# The pages about the design are not packaged.
write_pages() {
	local page
	mkdir "$stage/pages"
	for page in README.md packaging/docs/*.md; do
		sed -E -e "s#\\]\\((packaging/docs/)?(design/)#](https://$module/blob/HEAD/packaging/docs/\\2#g" \
			-e "s#\\]\\((\\.\\./\\.\\./)?(\\.github/|packaging/CHANGELOG)#](https://$module/blob/HEAD/\\2#g" \
			-e 's#\]\((packaging/docs/|packaging/|docs/|\.\./\.\./|\.\./)#](#g' \
			-e 's#\]\(LICENSE\)#](https://www.apache.org/licenses/LICENSE-2.0)#' "$page" >"$stage/pages/${page##*/}"
	done
}

write_completions() {
	redlock completion bash >"$stage/redlock.bash"
	redlock completion zsh >"$stage/_redlock"
	redlock completion fish >"$stage/redlock.fish"
}

write_debian_files() {
	{
		printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n'
		printf 'Source: https://%s\n\nFiles: *\nCopyright: %s %s\nLicense: Apache-2.0\n' \
			"$module" "$(date -d "@$SOURCE_DATE_EPOCH" +%Y)" "$author"
		printf ' On Debian systems the license is in /usr/share/common-licenses/Apache-2.0.\n'
		# Here, because this file stays on machines without other documentation.
		printf '\nFiles: usr/bin/redlock usr/sbin/redlockd\nCopyright: as below\nLicense: Apache-2.0 and others\n'
		sed 's/^$/./; s/^/ /' "$stage/THIRD-PARTY.debian"
	} >"$stage/copyright"
	printf 'redlockd (%s-1) unstable; urgency=medium\n\n  * See https://%s\n\n -- %s  %s\n' \
		"$version" "$module" "$author" "$(date -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$stage/changelog.Debian.gz"
}

# package KIND builds the .deb or the .rpm.
package() {
	STAGE=$stage VERSION=$version ARCH=$arch \
		go run "$nfpm" package --config packaging/nfpm.yaml --packager "$1" --target "$out/"
}

write_checksums() {
	(cd "$out" && sha256sum -- redlock redlockd redlockd.cdx.json THIRD-PARTY redlockd?"$version"[-~]*.deb redlockd?"$version"[-~]*.rpm >SHA256SUMS)
}

main
