package session

import "testing"

// LOST is sent in time, even if other requests hold the queue's mutex.
func TestLostDoesNotWaitForQueue(t *testing.T) {
	d := readyHost(t)
	w, _ := dialWithin(t, d.NewServer())
	w.Say("LOCK a,b ttl=1s hold=ttl", granted(`a,b`))
	defer holdQueue(d)()
	w.Want(`LOST lock=a,b .* reason=expired : .*`)
}

// holdQueue holds the queue's mutex until unlock is called.
func holdQueue(d *Host) (unlock func()) {
	d.queueMu.Lock()
	return d.queueMu.Unlock
}
