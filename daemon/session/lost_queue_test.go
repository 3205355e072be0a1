package session

import (
	"testing"

	"github.com/redlockd/redlockd/daemon/waitqueue"
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
func lockQueue(q *waitqueue.Queue) (unlock func()) {
	locked, unlocked, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		q.ChangeOwner(&waitqueue.Waiter{}, func() waitqueue.Owner {
			close(locked)
			<-unlocked
			return waitqueue.Owner{}
		})
	}()
	<-locked
	return func() {
		close(unlocked)
		<-done
	}
}
