package daemon

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/daemon/config"
)

// Differences compares a socket that the service manager created with the config.
func TestSocketDifferences(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := os.Chmod(path, 0o660); err != nil {
		t.Fatal(err)
	}
	own := strconv.Itoa(os.Getegid())
	for _, c := range []struct {
		name string
		cfg  config.Socket
		want []string
	}{
		{"none", config.Socket{Path: path, Mode: 0o660, Group: own}, nil},
		{"group not asked for", config.Socket{Path: path, Mode: 0o660}, nil},
		{"path", config.Socket{Path: "/x", Mode: 0o600}, []string{"socket.path is /x, found " + path}},
		{"mode", config.Socket{Path: path, Mode: 0o600}, []string{"socket.mode is 0600, found 0660"}},
		{"group", config.Socket{Path: path, Mode: 0o660, Group: "4294967"}, []string{"socket.group is 4294967 (4294967), found " + own}},
		{"no such group", config.Socket{Path: path, Mode: 0o660, Group: "no-such-group"}, []string{`group "no-such-group"`}},
	} {
		got := c.cfg.Differences(path)
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	listener.Close()
	if got := (&config.Socket{Path: path, Mode: 0o660}).Differences(path); len(got) != 1 || !strings.HasPrefix(got[0], "clients cannot find it") {
		t.Errorf("a removed socket: got %q", got)
	}
}

// A socket that the manager created stays when the daemon ends.
func TestSocketOfTheManagerStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	newSocket(&claim{path: path}, nil, false).release(true)
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}
