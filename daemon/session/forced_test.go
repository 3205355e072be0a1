package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/ipc"
)

// FORCE takes one of several names away; the others stay taken until the deadline where
// nobody has said that the holder has stopped: with hold=ttl the end of the connection
// says nothing of it, and where the daemon ends that, the client may be at work.
func TestForcedAwayIsNotGone(t *testing.T) {
	d := startDaemon(t, 3, patientNodes)
	w, admin := d.dial(), d.dial()
	w.Say("LOCK a,b ttl=30s hold=ttl", granted(`a,b`))
	w.Say("LOCK c,d ttl=30s hold=ttl", granted(`c,d`))
	other := d.dial()
	other.Say("LOCK e,f ttl=30s", granted(`e,f`))
	for _, name := range []string{"a", "e"} {
		admin.Say("FORCE "+name, `OK lock=`+name+` n=1 also=.*`)
	}
	w.Conn.Close()
	admin.Until("STATUS", `connections=2\b`)
	admin.Say("TRY b", `ERR HELD .*`)
	admin.Say("TRY d", `ERR HELD .*`)
	other.Want(`LOST lock=e,f .*`)
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	keys := d.Keys()
	for _, name := range []string{"b", "f"} {
		if left := slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return key != "redlock:"+name }); len(left) != 3 {
			t.Errorf("on the nodes: %v, want %s on all three", keys, name)
		}
	}
}

// A lock that was taken away elsewhere is nobody's, and is not said to be held here by who is
// not told before his ttl is over: FORCE, which finds nobody, tells him.
func TestForcedAwayElsewhere(t *testing.T) {
	d := startDaemon(t, 3, patientNodes)
	holder, admin := d.dial(), d.dial()
	lease := holder.Say("LOCK a,b ttl=30s hold=ttl", granted(`a,b`))[0]
	holder.Say("LOCK c ttl=30s hold=ttl", granted(`c`))
	d.another().dial().Say("FORCE a", `OK lock=a n=1 .*`)
	admin.Say("FORCE a", `OK lock=a n=0 : nobody held it`)
	holder.Want(`LOST lock=a,b lease=` + lease + ` reason=forced : .*`)
	admin.Say("LOCK a wait=0", granted(`a`))
	admin.Say("TRY b", `ERR HELD .*`) // until the deadline: he may be at work
	holder.Say("CHECK c", granted5)
}

// Who used FORCE, and from whom it took the lock away, is in the log.
func TestForceIsLogged(t *testing.T) {
	d := startDaemon(t, 3, patientNodes)
	var log daemontest.Log
	d.dial().Say("LOCK a", granted5)
	admin := d.anotherThatLogs(logging.New(&log, hclog.Info, logging.Text)).dial()
	admin.Say("FORCE a", `OK lock=a n=1 .*`)
	for _, want := range []string{`FORCE: lock=a pid=\d+ user=\S+ holders=1`, `taken away by FORCE: lock=a .* holder=\S+ host=\S+ holder_pid=\d+`} {
		daemontest.Matches(t, strings.ReplaceAll(log.String(), "\n", " "), `.*`+want+`.*`)
	}
}

// What readers held besides is said once, and no more of it than one line holds.
func TestForceSaysWhatReadersHeldBesides(t *testing.T) {
	d := startDaemon(t, 3, patientNodes)
	admin := d.dial()
	for range 2 {
		d.dial().Say("LOCK a,b mode=shared ttl=20s", granted(`a,b`))
	}
	admin.Say("FORCE a", `OK lock=a n=2 also=b : .*`)
	for i := range 2 {
		list := "c"
		for n := range 15 {
			list += fmt.Sprintf(",%d%d%s", i, n, strings.Repeat("x", 190))
		}
		d.dial().Say("LOCK "+list+" mode=shared ttl=20s", granted(list))
	}
	admin.Send("FORCE c")
	if line := admin.Line(); len(line) >= ipc.MaxLine || !strings.HasPrefix(line, "OK lock=c n=2 also=") {
		t.Errorf("%d bytes: %.100s", len(line), line)
	}
}
