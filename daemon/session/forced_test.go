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

// FORCE takes one of several names. The others stay taken until the deadline if nothing shows that
// the holder has stopped. With hold=ttl, the end of the connection does not show it. If the daemon
// ends the connection, the client may still work.
func TestForceKeepsOtherNamesUntilTheDeadline(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
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
			t.Errorf("keys on the nodes: %v, want %s on all three", keys, name)
		}
	}
}

// If another host's FORCE took a lock, this host does not list it as held, though the holder learns
// of it only before its ttl ends. A FORCE here finds no holder on the nodes, and sends LOST.
func TestForceByAnotherHost(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	holder, admin := d.dial(), d.dial()
	lease := holder.Say("LOCK a,b ttl=30s hold=ttl", granted(`a,b`))[0]
	holder.Say("LOCK c ttl=30s hold=ttl", granted(`c`))
	d.another().dial().Say("FORCE a", `OK lock=a n=1 .*`)
	admin.Say("FORCE a", `OK lock=a n=0 : nobody held it`)
	holder.Want(`LOST lock=a,b lease=` + lease + ` reason=forced : .*`)
	admin.Say("LOCK a wait=0", granted(`a`))
	admin.Say("TRY b", `ERR HELD .*`) // until the deadline: its holder may still work
	holder.Say("CHECK c", granted5)
}

// The log shows which client used FORCE, and which holder lost the lock.
func TestForceIsLogged(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
	var log daemontest.Log
	d.dial().Say("LOCK a", granted5)
	admin := d.anotherWithLog(logging.New(&log, hclog.Info, logging.Text)).dial()
	admin.Say("FORCE a", `OK lock=a n=1 .*`)
	for _, want := range []string{`FORCE: lock=a pid=\d+ user=\S+ holders=1`, `taken away by FORCE: lock=a .* holder=\S+ host=\S+ holder_pid=\d+`} {
		daemontest.Matches(t, strings.ReplaceAll(log.String(), "\n", " "), `.*`+want+`.*`)
	}
}

// The answer lists the readers' other names once each, and no more of them than fit in a line.
func TestForceListsOtherNamesOfReaders(t *testing.T) {
	d := startDaemon(t, 3, longNodeTimeout)
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
		t.Errorf("answer of %d bytes: %.100s", len(line), line)
	}
}
