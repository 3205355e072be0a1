package session

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/daemontest"
)

// WHO and LIST all=yes on any host show the hosts that wait, in the order in which they asked, and
// for how long each has waited. WHO also has the position of its own host.
func TestWaitingHosts(t *testing.T) {
	d := startDaemon(t, 3, nil)
	const hosts = 3
	var looks [hosts]*wire
	d.dial().Say("LOCK job", granted("job"))
	asked := time.Now()
	for i := range hosts {
		host := d.On(fmt.Sprintf("web%d", 4-i)) // not in the order of the names
		waiter := host.Dial()
		looks[i] = &wire{host.Dial()}
		waiter.Send("LOCK job")
		daemontest.Eventually(t, "the host is in the nodes' queues", func() bool { return d.queued("job") == 3*(i+1) })
	}
	for i, w := range looks {
		position := i + 1
		w.Send("WHO job")
		daemontest.Matches(t, w.Line(), `- lock=job mode=exclusive .*`)
		checkWaits(t, asked, w.Line(), fmt.Sprintf(`OK n=1 waiting_hosts=web4,web3,web2 waiting_ms=(\S+) position=%d`, position))
		w.Send("LIST all=yes")
		checkWaits(t, asked, w.Line(), `- lock=job state=held .* wanted=yes waiting_hosts=web4,web3,web2 waiting_ms=(\S+)`)
		for !strings.HasPrefix(w.Line(), "OK ") {
		}
	}
	other := d.dial()
	other.Send("WHO job")
	other.Line()
	checkWaits(t, asked, other.Line(), `OK n=1 waiting_hosts=web4,web3,web2 waiting_ms=(\S+)`)
	other.Say("WHO free", "OK n=0")
	here := d.dial()
	here.Send("LOCK job") // it may not be in the nodes' queues
	daemontest.Eventually(t, "a client of this host waits", func() bool {
		other.Send("WHO job")
		other.Line()
		return strings.HasSuffix(other.Line(), " position=4")
	})
}

// queued returns how many requests wait for a lock on the nodes, summed over them.
func (d *testDaemon) queued(name string) (n int) {
	d.T.Helper()
	for _, server := range d.Nodes.Servers {
		reply, err := server.Do("ZCARD", "redlock:"+name+"\x00q")
		if err != nil {
			d.T.Fatal(err)
		}
		n += int(reply.Int)
	}
	return n
}

// checkWaits checks for the times that three hosts have waited: each one has waited for longer than
// the next one, and none since before its request.
func checkWaits(t *testing.T, asked time.Time, line, pattern string) {
	t.Helper()
	var first, second, third int64
	fields := daemontest.Matches(t, line, pattern)
	if _, err := fmt.Sscanf(fields[0], "%d,%d,%d", &first, &second, &third); err != nil {
		t.Fatal(line)
	}
	if longest := time.Since(asked).Milliseconds() + 1; third < 0 || second < third || first < second || first > longest {
		t.Errorf("%s: want three times in descending order, and none above %d ms", line, longest)
	}
}
