package locktable

import (
	"errors"
	"testing"
)

// newCharged charges a LOCK of user 7.
func newCharged(t *Table, patient bool, names ...string) (*Lease, error) {
	l := &Lease{Requester: Requester{UID: 7}}
	l.Init(names, Kind{}, patient, testLease{})
	l.SetHolder(&Client{}, nil)
	return l, t.Charge(l, false)
}

// The error names the limit that was reached: a user with too many waiters has no lease to release.
// If both limits are reached, it names the waiters.
func TestErrorNamesTheLimit(t *testing.T) {
	for _, c := range []struct {
		leases, waiters int // of the user; leases: without waiters
		want            string
	}{
		{0, 3, "a limit of the config is reached: waiters_per_user = 3"},
		{3, 0, "a limit of the config is reached: leases_per_user = 3"},
		{1, 2, "a limit of the config is reached: leases_per_user = 3, of which 2 only wait for a lock"},
		{2, 0, ""},
		{0, 2, ""},
	} {
		table := NewTable()
		table.SetLimits(Limits{Leases: 3, Waiters: 3})
		for range c.leases {
			l, _ := newCharged(table, true, "a")
			table.Grant(l)
		}
		for range c.waiters {
			newCharged(table, true, "a")
		}
		got := ""
		if _, err := newCharged(table, true, "a"); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("with %d leases and %d waiters: got %q, want %q", c.leases, c.waiters, got, c.want)
		}
	}
}

// leases_per_user, not waiters_per_user, bounds the LOCKs in progress that do not wait.
func TestLocksThatDoNotWaitAreBounded(t *testing.T) {
	table, all := NewTable(), []*Lease{}
	table.SetLimits(Limits{Leases: 2, Waiters: 1})
	for range 2 {
		l, err := newCharged(table, false, "a")
		if all = append(all, l); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := newCharged(table, false, "a"); !errors.Is(err, ErrLimit) {
		t.Errorf("a third LOCK in progress: %v, want a limit", err)
	}
	for _, l := range all {
		table.Apply(l, NotGranted)
	}
	if !table.CountsNothing() {
		t.Errorf("left: %v", table.users)
	}
}

// LOCKs from before a restart count, and are not refused if the limits are lower now. So do leases, with
// their reentrant LOCKs.
func TestLimitsAfterARestart(t *testing.T) {
	table, restored := NewTable(), newTestLease(&Client{}, "a")
	table.SetLimits(Limits{Leases: 2, Waiters: 1})
	restored.SetFurthers([]string{"x"})
	restored.Life = Life{State: Held}
	table.Restore(restored, &Recorded{Was: Life{State: Held}})
	again := newTestLease(&Client{}, "b")
	again.Waiter.Patient = true
	if err := table.Charge(again, true); err != nil {
		t.Errorf("a LOCK from before the restart: %v", err)
	}
	if err := table.Charge(newTestLease(&Client{}, "c"), false); !errors.Is(err, ErrLimit) {
		t.Errorf("a new LOCK: %v, want a limit", err)
	}
	table.Apply(again, NotGranted)
	if _, err := table.CountUp(restored, &restored.Waiter, "y", true, false, errors.New("already")); !errors.Is(err, ErrLimit) {
		t.Errorf("a new reentrant LOCK: %v, want a limit", err)
	}
	if _, err := table.CountUp(restored, &restored.Waiter, "y", true, true, nil); err != nil {
		t.Errorf("a reentrant LOCK from before the restart: %v", err)
	}
	if got := table.users[0]; got != (usage{leases: 3}) {
		t.Errorf("counted: %+v, want 3 leases", got)
	}
}

// Lost leases of a user that has nothing else count, too. If leases are not bounded, lost leases are not
// either.
func TestLostLeasesAreCounted(t *testing.T) {
	for bound, want := range map[int]bool{3: true, 0: false} {
		table := NewTable()
		table.SetLimits(Limits{Leases: bound})
		for n := range 4 {
			l := newTestLease(&Client{}, "a")
			l.holder.lost = []*Lease{{}} // another one, which is older
			l.Life = Life{State: Lost, Knows: KnowsLoss}
			if due := table.Apply(l, LossRemembered); !due.Has(RememberLoss) {
				t.Fatalf("due: %b", due.Effects)
			}
			if got := table.Remember(l) != nil; got != (want && n == 3) {
				t.Errorf("leases_per_user = %d: lost lease %d is too many: %v", bound, n+1, got)
			}
		}
	}
}
