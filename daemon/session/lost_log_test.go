package session

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/daemon/waitqueue"
)

// A user who has thousands of leases end at once does not fill the log: it says how many,
// and names those of others.
func TestLossesAreNamedWithinBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		d := &Host{Log: logging.New(&log, hclog.Info, logging.Text)}
		named := func(user string, uid, times int) (n int) {
			h := &heldLease{Requester: waitqueue.Requester{UID: uid, User: user}}
			h.waiter.Init([]string{"a", "b"}, waitqueue.Kind{}, false, &h.Requester, nil)
			for range times {
				if d.isNamed(h) {
					n++
				}
			}
			return n
		}
		if eve, bob := named("eve", 7, lossLines+3), named("bob", 8, lossLines); eve != lossLines || bob != lossLines {
			t.Errorf("of eve %d are named, and of bob %d, want %d", eve, bob, lossLines)
		}
		time.Sleep(lossPause)
		synctest.Wait()
		if got, want := log.String(), "[WARN]  more leases lost or over than are named here: user=eve leases=3 latest=\"a,b\"\n"; !strings.HasSuffix(got, want) || strings.Count(got, "\n") != 1 {
			t.Errorf("logged:\n%s\nwant %s", got, want)
		}
		if named("eve", 7, 1) != 1 {
			t.Error("one that was lost later is not named")
		}
	})
}
