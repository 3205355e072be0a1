//go:build linux

package e2e

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// otherClients are the programs of packaging/conformance for the clients that are not in Go.
var otherClients = map[string][]string{
	"python":  {debianPython, "../conformance/program.py"},
	"asyncio": {debianPython, "../conformance/program.py", "--aio"},
	"node":    {"node", "../conformance/program.mjs"},
	"ruby":    {"ruby", "../conformance/program.rb"},
	"php":     {"php", "../conformance/program.php"},
}

// The daemon is killed and started repeatedly, without a service manager. A program in another
// language keeps its leases, and its waiting request gets the lock.
func TestOtherClientsUnderKills(t *testing.T) {
	t.Parallel()
	for name, command := range otherClients {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(command[0]); err != nil {
				t.Skipf("%s is needed: apt-get install python3 nodejs ruby php-cli", command[0])
			}
			outlastsKills(t, start(t, ".", command...))
		})
	}
}

func outlastsKills(t *testing.T, p *process) {
	const leases = 20
	_, h, d := five(t)
	look := h.nc()
	look.expect("LOCK wanted hold=pid pid="+strconv.Itoa(p.cmd.Process.Pid), "OK lock=wanted")
	p.send("begin " + h.socket)
	for i := range leases {
		p.send(fmt.Sprintf("lock k%d held-%d ttl=20000", i, i))
		p.prints(fmt.Sprintf("granted k%d fence=", i))
	}
	p.send("lock w wanted ttl=20000")
	for range rounds(2, 20) {
		d.kill()
		d = h.serve()
		again := h.nc()
		waitFor(t, "it waits and holds again", func() bool {
			return again.waiters() == 1 && len(again.lines("LIST")) == leases+3
		})
	}
	h.nc().expect(fmt.Sprintf("UNLOCK wanted pid=%d", p.cmd.Process.Pid), "OK lock=wanted")
	p.prints("granted w fence=")
	for i := range leases {
		p.send(fmt.Sprintf("release k%d", i))
		p.prints(fmt.Sprintf("released k%d", i)) // and not that it is lost
	}
	p.send("end")
	p.prints("ended")
}

// prints waits for the next line, and checks its beginning.
func (p *process) prints(want string) {
	p.t.Helper()
	if got := p.line(); !strings.HasPrefix(got, want) {
		p.t.Fatalf("the program prints %q, want %q", got, want)
	}
}
