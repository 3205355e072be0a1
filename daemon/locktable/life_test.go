package locktable

import (
	"slices"
	"testing"
)

// lifeIn returns the life of a lease that a client knows.
func lifeIn(state State) Life {
	knows := map[State]ClientKnows{Acquiring: KnowsNothing, Held: KnowsGrant, Lost: KnowsLoss, Kept: KnowsGrant, Releasing: KnowsGrant, Gone: KnowsLoss}
	return Life{State: state, Knows: knows[state]}
}

// LOST is sent once, and never before the OK of the LOCK.
func TestLostFollowsTheGrant(t *testing.T) {
	for _, test := range []struct {
		events []Event
		sends  int // the index of the event that sends LOST; -1: none
	}{
		{[]Event{WasGranted, GrantReported, WasLost, WasLost}, 2},
		{[]Event{WasGranted, WasLost, GrantReported, GrantReported}, 2},
		{[]Event{WasLost, WasGranted, DeadlinePassed, GrantReported}, 3},
		{[]Event{WasGranted, GrantReported, ExtensionsEnded, WasLost}, 3},
		{[]Event{WasGranted, GrantReported, ExtensionsEnded, DeadlinePassed}, -1},
		{[]Event{WasGranted, GrantReported, LastUnlock, ReleaseRefused, WasLost}, 4},
		{[]Event{WasLost, WasGranted, DeadlinePassed}, -1},
	} {
		life, sent := Life{}, -1
		for i, event := range test.events {
			next, do := life.After(event, false)
			if life = next; do.Has(SendLost) {
				if sent >= 0 {
					t.Errorf("%v: LOST is sent twice", test.events)
				}
				sent = i
			}
		}
		if sent != test.sends {
			t.Errorf("%v: LOST is sent after %d, want after %d", test.events, sent, test.sends)
		}
	}
}

// A remembered loss ends once: it no longer counts towards the user's limit, and its record is
// deleted. The record of a release stays, unless the lease turns out to be lost.
func TestLossIsForgottenOnce(t *testing.T) {
	remembered, _ := Life{State: Lost, Knows: KnowsLoss}.After(LossRemembered, false)
	if _, do := remembered.After(LossRemembered, false); do != 0 {
		t.Errorf("lossKept again: effects %b", do)
	}
	over, do := remembered.After(Dropped, false)
	if do != leaveClient|unregister|uncountLoss|DeleteRecord {
		t.Errorf("dropped: effects %b", do)
	}
	for event := range eventCount {
		if _, do := over.After(event, false); do.Has(unregister | uncountLoss | DeleteRecord | RememberLoss) {
			t.Errorf("event %d after dropped: effects %b", event, do)
		}
	}
	refused, _ := lifeIn(Releasing).After(Dropped, false)
	if next, do := refused.After(ReleaseRefused, false); next.State != Lost || do != DeleteRecord {
		t.Errorf("releaseRefused after dropped: state %d, effects %b; want lost, and the record deleted", next.State, do)
	}
}

// A lease that is lost before its client got the grant does not count as held.
func TestUnansweredLeaseDoesNotCountAsHeld(t *testing.T) {
	unanswered, _ := Life{}.After(WasLost, false)
	if _, do := unanswered.After(DeadlinePassed, false); do != LeaveQueue {
		t.Errorf("a lease that was lost before its LOCK was answered: effects %b, want only leaveQueue", do)
	}
}

// On every path through the states, from a new LOCK or a restart on, a lease leaves the queue once, is
// released once, and counts in the metrics only when it has left. No lease leaves the state gone.
func TestLeaseEndsOnce(t *testing.T) {
	type path struct {
		life Life
		once Effects // what was done already

		released bool
	}
	const single = LeaveQueue | CountHeldTime | SendLost | unregister | uncountLoss | RememberLoss
	todo := []path{{}}
	for state := range stateCount {
		for knows := KnowsNothing; knows <= KnowsLoss; knows++ {
			if state.Continues() && (state != Gone) {
				life, do := Life{State: state, Knows: knows}.After(Restarted, true)
				todo = append(todo, path{life: life, once: do & single})
			}
		}
	}
	seen := map[path]bool{}
	for len(todo) > 0 {
		now := todo[0]
		todo = todo[1:]
		for event := range Restarted {
			next, do := now.life.After(event, false)
			if now.released && slices.Contains([]Event{ReleaseBegun, ReleaseRefused, WasLost, ExtensionsEnded}, event) {
				continue // a redlock.Lease ends once
			}
			if again := now.once & do & single; again != 0 {
				t.Fatalf("event %d at %+v does %b again", event, now, again)
			}
			if do.Has(CountHeldTime) && !do.Has(LeaveQueue) {
				t.Fatalf("event %d at %+v counts the time of a lease that stays in the queue", event, now)
			}
			if now.life.State == Gone && next.State != Gone {
				t.Fatalf("event %d at %+v leads to state %d", event, now, next.State)
			}
			released := now.released || event == ReleaseBegun && now.life.State == Releasing
			if then := (path{next, now.once | do&single, released}); !seen[then] {
				seen[then] = true
				todo = append(todo, then)
			}
		}
	}
}
