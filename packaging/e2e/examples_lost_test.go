//go:build linux

package e2e

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// An example never misses LOST, even if it comes together with another line, or with the answer to
// UNLOCK. An example whose UNLOCK gets no answer does not report success.
func TestExamplesMissNoLoss(t *testing.T) {
	t.Parallel()
	const lost = "LOST lock=job lease=x reason=quorum : gone\n"
	stories := map[string]struct {
		steps          string
		lock, unlocked string // lines of the daemon, each in one write
		codes          []int
	}{
		"with the grant":  {"40", lost, "", []int{75}},
		"behind BACK":     {"40", "BACK : again\n" + lost, "", []int{75}},
		"with the answer": {"1", "", lost + "ERR LOST lock=job reason=quorum : gone\n", []int{75}},
		"no answer":       {"1", "", "", []int{69, 75}},
	}
	for _, e := range examples {
		t.Run(e.file, func(t *testing.T) {
			program := e.program(t)
			for name, story := range stories {
				cmd := exec.Command(program, "job", story.steps)
				cmd.Env = append(os.Environ(), "REDLOCK_SOCKET="+sayToOne(t, story.lock, story.unlocked))
				out, err := combined(cmd)
				if !slices.Contains(story.codes, cmd.ProcessState.ExitCode()) || strings.Contains(string(out), "done\n") || strings.Contains(string(out), "step 40\n") {
					t.Errorf("%s: %v, want exit code %v, and that it stops; printed\n%s", name, err, story.codes, out)
				}
			}
		})
	}
}

// sayToOne returns the socket of a daemon that grants one LOCK. The daemon then sends only these
// texts and closes the connection.
func sayToOne(t *testing.T, lock, unlocked string) (socket string) {
	socket = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	deadline := (bootTime(t) + time.Minute).Milliseconds()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		_, _ = in.ReadString('\n') // the LOCK; an error shows in the client
		fmt.Fprintf(conn, "OK lock=job lease=x fence=5 ttl=60000 deadline=%d\n%s", deadline, lock)
		_, _ = in.ReadString('\n')
		fmt.Fprint(conn, unlocked)
	}()
	return socket
}
