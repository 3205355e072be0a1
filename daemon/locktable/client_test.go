package locktable

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func newTestLease(on *Client, names ...string) *Lease {
	l := &Lease{}
	l.Init(names, Kind{}, false, testLease{})
	l.SetHolder(on, on)
	return l
}

// When a LOCK that has ended leaves the client, it does not remove a later LOCK of the same name.
func TestClientKeepsTheLaterRequest(t *testing.T) {
	var k Client
	first, second, third := newTestLease(&k, "a", "b"), newTestLease(&k, "b", "c"), newTestLease(&k, "c")
	k.Begin(first, nil)
	if firsts := k.Begin(second, map[*Lease]bool{first: true}); firsts != nil {
		t.Fatalf("a name of an ended lease counts as taken by %v", firsts)
	}
	k.End(first)
	if k.requests[first.nameKey("a")] != nil {
		t.Error("a name is still taken after its request left")
	}
	for _, later := range []*Lease{newTestLease(&k, "b"), third} {
		if firsts := k.Begin(later, nil); len(firsts) != 1 || firsts[0] != second {
			t.Errorf("%v: taken by %v, want the LOCK under way", later.Waiter.Names, firsts)
		}
	}
	k.End(second)
	if firsts := k.Begin(third, nil); firsts != nil {
		t.Errorf("after that the name is taken by %v", firsts)
	}
}

// Two requests that count on a lease may take it over at the same time.
func TestClientTakeOverIsIdempotent(t *testing.T) {
	var k Client
	h := newTestLease(&k, "a", "b")
	for range 2 {
		if before, err := k.takeOver(h); before != nil || err != nil || k.leases[h.nameKey("b")] != h {
			t.Errorf("takeOver: replaced %v, error %v", before, err)
		}
	}
}

// A lease that is granted after the client has ended is not added to it.
func TestClosedClientAddsNothing(t *testing.T) {
	var k Client
	held, late := newTestLease(&k, "a", "b"), newTestLease(&k, "c")
	if before, open := k.add(held); before != nil || !open {
		t.Fatalf("the first lease: replaced %v, open %v", before, open)
	}
	if all := k.close(); len(all) != 1 || all[0] != held {
		t.Errorf("close returned %v, want one lease of two names", all)
	}
	if _, open := k.add(late); open || k.leases[late.nameKey("c")] != nil || k.leases[held.nameKey("a")] != nil {
		t.Errorf("a lease after close: open %v, the index has %v", open, slices.Collect(k.All()))
	}
	if again := k.close(); len(again) != 0 {
		t.Errorf("a second close returned %v", again)
	}
}

// A client remembers at most maxRemembered lost leases, and forgets the oldest one first.
func TestClientForgetsOldestLoss(t *testing.T) {
	k, all := &Client{}, make([]*Lease, maxRemembered+3)
	for i := range all {
		all[i] = newTestLease(k, "a")
	}
	k.remember(all[0], false)
	k.remove(all[0])
	for i, l := range all[1:] {
		var want *Lease
		if i >= maxRemembered {
			want = all[1+i-maxRemembered]
		}
		if got := k.remember(l, false); got != want {
			t.Fatalf("lease %d: the wrong lease is forgotten, or none", i)
		}
	}
}

// The end of the previous connection does not take a resumed lease away, even while both
// connections know the lease by its names.
func TestEndOfPreviousConnection(t *testing.T) {
	var before, next Client
	table, l := NewTable(), newTestLease(&before, "a")
	table.Name(l)
	_, moved, err := table.Resume(l, &next)
	before.add(l)
	if ended := table.Disconnect(&before); !moved || err != nil || len(ended) > 0 || l.Reporter() != &next {
		t.Error("the lease has no connection, and would be released")
	}
}

// A lease can be lost before its LOCK has made the client find it. If a later LOCK of the same names was
// granted meanwhile, the client finds that one, and the lost one is forgotten.
func TestLateGrantKeepsTheLaterLease(t *testing.T) {
	var c Client
	table, late, later := NewTable(), newTestLease(&c, "a"), newTestLease(&c, "a")
	late.Waiter.backing = lostTestLease{}
	table.Name(later)
	if forget, _ := table.Name(late); !slices.Equal(forget, []*Lease{late}) || c.Find(0, "", "a") != later {
		t.Errorf("the later lease is found: %v, and %d leases are forgotten", c.Find(0, "", "a") == later, len(forget))
	}
}

// A lease that no client has claimed after a restart is not found any more when it has ended, by none of
// the LOCKs that count on it.
func TestEndedLeaseIsNotUnclaimed(t *testing.T) {
	table, l := NewTable(), newTestLease(&Client{}, "a")
	l.ID, l.Life = "first", Life{State: Held, Knows: KnowsGrant}
	l.SetFurthers([]string{"further"})
	table.addUnclaimed(l)
	table.Apply(l, WasLost)
	if table.Apply(l, DeadlinePassed); table.Unclaimed.Load() != 0 {
		t.Errorf("%d LOCKs are unclaimed, want none", table.Unclaimed.Load())
	}
}

// lostTestLease is a testLease that was lost.
type lostTestLease struct{ testLease }

func (l lostTestLease) Grant() Grant { return l }
func (lostTestLease) Err() error     { return errors.New("lost") }

// A client can share a lock again while its first lease is being released. It finds the second one then.
func TestGrantDuringRelease(t *testing.T) {
	var c Client
	table, first, second := NewTable(), newTestLease(&c, "a"), newTestLease(&c, "a")
	table.Name(first)
	first.Life.State = Releasing
	if forget, _ := table.Name(second); !slices.Equal(forget, []*Lease{first}) || c.Find(0, "", "a") != second {
		t.Errorf("the second lease is found: %v, and %d leases are forgotten", c.Find(0, "", "a") == second, len(forget))
	}
}

// A restart knows only the reentrant LOCKs that are answered and not undone: the others begin again, and
// count then. When the first of several LOCKs that waited together is answered, its client may send UNLOCK
// before the others are answered.
func TestAnsweredFurthers(t *testing.T) {
	for _, test := range []struct{ steps, want string }{
		{"+x", ""},
		{"+x !x", "x"},
		{"+x !x -", ""},
		{"+x - !x", ""},
		{"+x +y - - !x !y", ""},
		{"+x +y - !x !y", "x"},
		{"+x +y !y", "y"},
		{"+x !x - +y +z !y !z -", "y"},
		{"+ + ! !", ","},
	} {
		table, l := NewTable(), newTestLease(&Client{}, "a")
		l.SetHolder(l.Holder(), l.Holder())
		l.Life.State = Held
		for step := range strings.FieldsSeq(test.steps) {
			switch id := step[1:]; step[0] {
			case '+':
				if _, err := table.CountUp(l, &l.Waiter, id, true, false, nil); err != nil {
					t.Fatal(err)
				}
			case '!':
				l.Answer(id)
			case '-':
				table.CountDown(l)
			}
		}
		if got := strings.Join(l.AnsweredFurthers(), ","); got != test.want {
			t.Errorf("%s: the state file has %q, want %q", test.steps, got, test.want)
		}
	}
}
