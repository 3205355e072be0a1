package logging

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
)

var testLease = Lease{Lock: "a,b", Fence: 7, Mode: "exclusive", UID: 1000, User: "eve", PID: 42}

// A line has all facts. Grants are logged only if SetGrants switched them on.
func TestLeaseLines(t *testing.T) {
	var out bytes.Buffer
	l := NewLeaseLog(New(&out, hclog.Info, Text), "web1", false)
	const facts = `lock="a,b" fence=7 user=eve pid=42 host=web1 mode=exclusive `
	say := func() string {
		out.Reset()
		l.Granted(testLease, 1500*time.Microsecond)
		l.Released(testLease, 2*time.Second, "unlock")
		l.Refused(testLease, time.Second, "NOQUORUM", Holder{})
		l.Refused(testLease, time.Second, "HELD", Holder{Host: "web2", User: "bob", PID: 7})
		return out.String()
	}
	if got := say(); got != "" {
		t.Errorf("grants are off: logged %s", got)
	}
	l.SetGrants(true)
	if got, want := say(), []string{"lock granted: " + facts + "waited_ms=1\n", "lock released: " + facts + "held_ms=2000 reason=unlock\n"}; !strings.Contains(got, want[0]) || !strings.Contains(got, want[1]) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for _, want := range []string{
		"lock refused: lock=\"a,b\" code=NOQUORUM user=eve pid=42 host=web1 mode=exclusive waited_ms=1000\n",
		"lock refused: lock=\"a,b\" code=HELD user=eve pid=42 host=web1 mode=exclusive waited_ms=1000 by_host=web2 by_user=bob by_pid=7\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got\n%swant\n%s", out.String(), want)
		}
	}
	out.Reset()
	l.SetGrants(false)
	l.Lost(testLease, time.Second, "quorum", errors.New("too few nodes"), false)
	l.Lost(testLease, time.Second, "expired", nil, true)
	for _, want := range []string{
		`[WARN]  lease lost: lock="a,b" reason=quorum user=eve pid=42 cause="too few nodes" fence=7 host=web1 mode=exclusive held_ms=1000`,
		`[INFO]  lease over: its ttl ended (hold=ttl): lock="a,b" user=eve pid=42 fence=7 host=web1 mode=exclusive held_ms=1000`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got\n%swant %s", out.String(), want)
		}
	}
}

// lockedBuffer can be read while a logger writes to it.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// take returns the bytes that were written since the last call.
func (b *lockedBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.buf.Reset()
	return b.buf.String()
}

// If thousands of leases of a user end at once, they do not fill the log. The log says how many lines
// it left out, and still has the lines about other users.
func TestLeaseLinesAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		say   func(*LeaseLog, Lease)
		bound int
		want  string
	}{
		"losses":   {func(l *LeaseLog, of Lease) { l.Lost(of, 0, "max", nil, false) }, maxLossLines, "lines of lost leases were left out: user=eve lines=3 latest=\"a,b\"\n"},
		"refusals": {func(l *LeaseLog, of Lease) { l.Refused(of, 0, "HELD", Holder{}) }, maxGrantLines, "lines of grants, refusals and releases were left out: user=eve lines=3 latest=\"a,b\"\n"},
		"grants":   {func(l *LeaseLog, of Lease) { l.Granted(of, 0) }, maxGrantLines, "lines of grants, refusals and releases were left out: user=eve lines=3 latest=\"a,b\"\n"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out lockedBuffer
			l := NewLeaseLog(New(&out, hclog.Info, Text), "web1", true)
			ctx, end := context.WithCancel(t.Context())
			ran := make(chan struct{})
			go func() { defer close(ran); l.Run(ctx) }()
			bob := testLease
			bob.UID, bob.User = 8, "bob"
			for range c.bound + 3 {
				c.say(l, testLease)
			}
			c.say(l, bob)
			got := out.take()
			if n, others := strings.Count(got, "user=eve"), strings.Count(got, "user=bob"); n != c.bound || others != 1 {
				t.Errorf("%s: %d lines of eve and %d of bob, want %d and 1", name, n, others, c.bound)
			}
			time.Sleep(leaseWindow)
			synctest.Wait()
			if got := out.take(); !strings.HasSuffix(got, c.want) || strings.Count(got, "\n") != 1 {
				t.Errorf("%s: logged:\n%s\nwant %s", name, got, c.want)
			}
			c.say(l, testLease)
			if !strings.Contains(out.take(), "user=eve") {
				t.Errorf("%s: a line in the next window is left out", name)
			}
			end()
			<-ran
		})
	}
}
