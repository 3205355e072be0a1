package session

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/redlockd/redlockd/daemon/daemontest"
)

// A connection that is passed to another process keeps its opener's identity. Any process that uses
// it has exactly the opener's rights.
func TestAccessOfPassedConnection(t *testing.T) {
	d := startWithRules(t, exampleRules)
	for _, c := range []struct {
		opener, user account
		want         string
	}{
		{web, nobody, "OK lock=web/a "},
		{nobody, web, "ERR DENIED lock=web/a : "},
		{nobody, root, "ERR DENIED lock=web/a : "},
	} {
		w := d.dialAs(c.opener)
		file, err := w.Conn.(*net.UnixConn).File()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), daemontest.Patience)
		defer cancel()
		user := exec.CommandContext(ctx, "/bin/sh", "-c", `echo TRY web/a >&3; read -r answer <&3; echo "$answer"`)
		user.Dir, user.ExtraFiles = "/", []*os.File{file}
		user.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(c.user.uid), Gid: uint32(c.user.gid)}}
		got, err := user.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(got), c.want) {
			t.Errorf("opened by %d, used by %d: got %q, %v; want %q", c.opener.uid, c.user.uid, got, err, c.want)
		}
		file.Close()
		w.Conn.Close()
	}
}

// A user that may read the nodes' keys sees the lease ids, as SECURITY.md says.
func TestNodesKnowLeaseIDs(t *testing.T) {
	d := startDaemon(t, 3, nil)
	lease := d.dial().Say("LOCK a", granted5)[0]
	for _, server := range d.Nodes.Servers {
		value, err := server.Do("GET", "redlock:a")
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(value.Str, lease) {
			return // the other nodes may not have it yet
		}
	}
	t.Error("no node stores the lease's id: SECURITY.md is out of date")
}
