package config

import (
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/ipc"
)

// This file checks single values. Each check returns what was wanted, or "" if the value is good.

const (
	addressForms = `an address: "host:port", "[v6]:port" or "unix:/absolute/path"`
	allowWords   = `"lock", "inspect" and "admin"`

	maxNameLength   = 32
	maxPrefixLength = 64
	reservedKeys    = "redlockd:"
)

// checkName checks a name that status lines and replies show. It may have no character that needs
// quoting, and "all" is a word of the protocol's ADMIT.
func checkName(name string) string {
	const wanted = "a name of 1 to 32 letters, digits, dots, dashes and underscores that begins with a letter or digit"
	if name == "" || len(name) > maxNameLength || strings.ContainsAny(name[:1], "._-") || !onlyNameBytes(name) {
		return wanted
	}
	if name == "all" {
		return `another name: "all" means all of them`
	}
	return ""
}

// checkKeyPrefix keeps the keys of locks apart from redlockd's own keys: no prefix followed by a name
// may begin with "redlockd:".
func checkKeyPrefix(prefix string) string {
	switch {
	case len(prefix) > maxPrefixLength || !isPlain(prefix):
		return "at most 64 bytes without spaces and control characters"
	case prefix != "" && (strings.HasPrefix(prefix, reservedKeys) || strings.HasPrefix(reservedKeys, prefix)):
		return `a prefix that no lock name can complete to "redlockd:…", where redlockd keeps its own keys`
	}
	return ""
}

func checkNodeAddress(address string) string {
	if socket, ok := strings.CutPrefix(address, "unix:"); ok {
		if checkUnixPath(socket) != "" {
			return addressForms + ", the path of at most 107 bytes"
		}
		return ""
	}
	switch {
	case strings.Contains(address, "://"):
		return addressForms + ", not a URL (TLS and passwords have options of their own)"
	case hasDatabase(address):
		return addressForms + " (a database has an option of its own: database = " + address[strings.LastIndex(address, "/")+1:] + ")"
	case strings.Contains(address, "@"):
		return addressForms + " (users and passwords have options of their own)"
	}
	return checkHostPort(address, addressForms)
}

// maxDatabase is the largest number of a database. Redis has 16 of them, if its config has no other
// number.
const maxDatabase = 1<<31 - 1

// hasDatabase reports whether an address ends with the number of a database: "host:port/2".
func hasDatabase(address string) bool {
	before, number, found := strings.Cut(address, "/")
	_, err := strconv.ParseUint(number, 10, 31)
	return found && err == nil && strings.Contains(before, ":")
}

// checkListenAddress requires the host, so that nobody listens on all interfaces by accident.
func checkListenAddress(address string) string {
	return checkHostPort(address, `host:port such as "127.0.0.1:9852" (all interfaces: "0.0.0.0:9852" or "[::]:9852")`)
}

func checkHostPort(address, wanted string) string {
	host, port, err := net.SplitHostPort(address)
	switch {
	case err != nil && strings.Count(address, ":") > 1:
		return wanted + " (write an IPv6 address in brackets)"
	case err != nil:
		return wanted + " (the port is missing)"
	case checkHost(host) != "":
		return wanted + ", the host a name or an IP address"
	case !isPort(port):
		return wanted + ", the port from 1 to 65535"
	}
	return ""
}

// checkHost accepts IP addresses and host names.
func checkHost(host string) string {
	const wanted = "a host name or an IP address"
	if _, err := netip.ParseAddr(host); err == nil {
		return ""
	}
	if host == "" || len(host) > 253 || strings.ContainsAny(host[:1], ".-") || !onlyNameBytes(host) {
		return wanted
	}
	if strings.Trim(host, "0123456789.") == "" { // 10.0.0.256
		return wanted
	}
	return ""
}

func checkUsername(name string) string {
	if name == "" || len(name) > 128 || !isPlain(name) {
		return "a Redis user without spaces"
	}
	return ""
}

func checkFileName(name string) string {
	if name == "" || strings.ContainsRune(name, 0) {
		return "the name of a file"
	}
	return ""
}

func checkUnixPath(name string) string {
	if !path.IsAbs(name) || len(name) > ipc.MaxSocketPath || strings.HasSuffix(name, "/") || strings.ContainsFunc(name, unicode.IsControl) {
		return "an absolute path of at most 107 bytes"
	}
	return ""
}

func checkMode(mode string) string {
	bits, err := strconv.ParseUint(mode, 8, 32)
	if err != nil || bits > 0o777 || bits&0o600 != 0o600 {
		return `an octal mode such as "0660" that lets at least the owner read and write`
	}
	return ""
}

func checkAccount(name string) string {
	if name == "" || len(name) > 256 || !isPlain(name) {
		return "the name of an account, without spaces"
	}
	return ""
}

func checkLockPattern(pattern string) string {
	switch {
	case pattern == "" || len(pattern) > ipc.MaxName || !isPlain(strings.ReplaceAll(pattern, " ", "")):
		return "a lock name of 1 to 200 bytes, with * for any run of characters without /, and ** for any run"
	case strings.Contains(pattern, "***"):
		return "* or ** (which stands for / too)"
	}
	return ""
}

func checkAllow(word string) string {
	if !slices.Contains(AllRights, word) {
		return "one of " + allowWords
	}
	return ""
}

func checkDoctorCheck(word string) string {
	if !slices.Contains(DoctorChecks, word) {
		return "one of " + strings.Join(DoctorChecks, ", ")
	}
	return ""
}

func checkLevel(word string) string {
	if _, err := logging.ParseLevel(word); err != nil {
		return "one of " + logging.LevelWords
	}
	return ""
}

func checkFormat(word string) string {
	if word != string(logging.Text) && word != string(logging.JSON) {
		return `"text" or "json"`
	}
	return ""
}

func isPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// isPlain reports whether text is valid UTF-8 with visible characters only.
func isPlain(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(c rune) bool {
		return c == ' ' || !unicode.IsPrint(c)
	})
}

func onlyNameBytes(text string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return strings.Trim(text, allowed) == ""
}
