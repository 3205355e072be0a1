package session

import (
	"testing"

	"github.com/redlockd/redlockd/daemon/locktable"
)

// LOST is sent in time, even if other requests hold the queue's mutex.
func TestLostDoesNotWaitForQueue(t *testing.T) {
	d := readyHost(t)
	w, _ := dialWithin(t, d.NewServer())
	w.Say("LOCK a,b ttl=1s hold=ttl", granted(`a,b`))
	defer lockQueue(d.Queue)()
	w.Want(`LOST lock=a,b .* reason=expired : .*`)
}

// lockQueue holds the queue's mutex until unlock is called.
func lockQueue(q *locktable.Queue) (unlock func()) {
	locked, unlocked, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		q.ChangeOwner(&locktable.Waiter{}, func() locktable.Owner {
			close(locked)
			<-unlocked
			return locktable.Owner{}
		})
	}()
	<-locked
	return func() {
		close(unlocked)
		<-done
	}
}
