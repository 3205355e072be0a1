package server

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A client that does not read delays Freeze only until its context is done. Then Freeze cuts it,
// because the next process cannot continue half a line.
func TestFreezeCutsSlowReaders(t *testing.T) {
	tab := newTable()
	d := startFrozen(t, tab, func(d *fakeDaemon) { d.bulk = strings.Repeat("x", 3000) })
	s, slow := d.dialStored(t), d.dialStored(t)
	go func() { // until the connection is cut
		for {
			if _, err := slow.nc.Write([]byte("@a LIST\n")); err != nil {
				return
			}
		}
	}()
	c := d.newest()
	for !c.out.isFull() {
		say(t, s.nc, "PING\n")
		hear(t, s.nc, "OK\n")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	sealed := false
	err := d.Freeze(ctx, FreezeOptions{Keep: keepAll, Seal: func() { sealed = c.WasCut() }})
	if !errors.Is(err, context.DeadlineExceeded) || !sealed {
		t.Errorf("Freeze: %v, cut before Seal: %v", err, sealed)
	}
	if why := await(t, d.drops, "the cut"); !errors.Is(why, ErrSlow) {
		t.Errorf("cut because of %v", why)
	}
	d.hearEnds(t, "input gone=true", "close")
	newTable().restart(t, s.dup) // the first connection is the slow client's
	say(t, s.nc, "PING\n")
	hear(t, s.nc, "OK\n")
}

// A connection that is not kept, and whose client does not read, delays Freeze only until its
// context is done, and is cut. A kept connection whose session does not return is left to the next
// process.
func TestFreezeOutOfTime(t *testing.T) {
	for name, keep := range map[string]bool{"not kept": false, "its session does not come back": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tab := newTable()
				tab.noting = keep
				d := tab.daemon()
				nc, over := pipeFake(d)
				if keep {
					say(t, nc, "@a LOCK x\n")
					d.waiting(t, "x") // after RecordingAnswer
				} else {
					say(t, nc, "PING\n") // the test does not read the answer
				}
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				if err := d.Freeze(ctx, FreezeOptions{Keep: func(Session) bool { return keep }}); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Freeze: %v", err)
				}
				synctest.Wait()
				select {
				case why := <-d.drops:
					if keep || !errors.Is(why, ErrShutdown) {
						t.Errorf("cut because of %v", why)
					}
				default:
					if !keep {
						t.Error("not cut")
					}
				}
				if keep {
					close(d.channel(d.gates, "x"))
					go io.Copy(io.Discard, nc)
					defer nc.Close()
				}
				<-over
				if took := time.Since(start); took != time.Second {
					t.Errorf("it took %v, want 1s", took)
				}
			})
		})
	}
}

// A journal that blocks delays Freeze only until its context is done. Freeze neither ends nor
// answers its connection.
func TestFreezeWithBlockedJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFake()
		release := make(chan struct{})
		d.Open = func(c *Conn) (Session, error) {
			s, err := d.open(c)
			return blockedJournal{s.(*fakeSession), release}, err
		}
		nc, over := pipeFake(d)
		say(t, nc, "PING\n")
		hear(t, nc, "OK\n")
		say(t, nc, "LOCK x\n") // is not answered without an UNLOCK
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := d.Freeze(ctx, FreezeOptions{Keep: keepAll}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Freeze: %v", err)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("it took %v, want 1s", took)
		}
		close(release)
		<-over
		nc.SetReadDeadline(time.Now())
		if n, err := nc.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the client read %d bytes: %v", n, err)
		}
		close(d.channel(d.gates, "x"))
	})
}

type blockedJournal struct {
	*fakeSession
	release chan struct{}
}

func (b blockedJournal) RecordRequest(*Call, []byte, *UnreadChange) { <-b.release }
func (b blockedJournal) RecordAnswer(*Call)                         {}
func (b blockedJournal) RecordUnread(UnreadChange)                  {}
