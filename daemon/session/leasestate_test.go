package session

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/waitqueue"
	"github.com/redlockd/redlockd/redlock"
)

// leaseStates are all states, in the order of the columns of lifeTable.
var leaseStates = []leaseState{acquiring, held, lost, kept, releasing, gone}

// step is what one event does to a lease.
type step struct {
	next leaseState
	do   leaseActions
}

// lifeTable has a row for each event and a column for each state. In each column, the client knows
// the lease: it got OK, and LOST if the lease is lost.
var lifeTable = [leaseEventCount][]step{
	//               acquiring, held, lost, kept, releasing, gone
	wasGranted:      {{held, startHeartbeat}, {held, 0}, {lost, 0}, {kept, 0}, {releasing, 0}, {gone, 0}},
	notGranted:      {{gone, 0}, {held, 0}, {lost, 0}, {kept, 0}, {releasing, 0}, {gone, 0}},
	grantReported:   {{acquiring, 0}, {held, 0}, {lost, 0}, {kept, 0}, {releasing, 0}, {gone, 0}},
	wasLost:         {{lost, 0}, {lost, sendLost}, {lost, 0}, {lost, dropLoss}, {lost, sendLost}, {gone, 0}},
	extensionsEnded: {{lost, 0}, {lost, 0}, {lost, 0}, {lost, 0}, {lost, 0}, {gone, 0}},
	deadlinePassed:  {{acquiring, 0}, {held, 0}, {gone, leaveQueue | countHeldTime}, {kept, 0}, {releasing, 0}, {gone, 0}},
	lastUnlock:      {{acquiring, 0}, {releasing, beginRelease}, {lost, 0}, {kept, 0}, {releasing, 0}, {gone, 0}},
	clientIsGone:    {{acquiring, 0}, {releasing, beginRelease}, {lost, unregister | deleteRecord}, {kept, 0}, {releasing, 0}, {gone, unregister | deleteRecord}},
	minNotPassed:    {{acquiring, 0}, {held, 0}, {lost, 0}, {kept, 0}, {kept, delayRelease}, {gone, 0}},
	minPassed:       {{acquiring, 0}, {held, 0}, {lost, 0}, {releasing, beginRelease}, {releasing, 0}, {gone, 0}},
	releaseBegun:    {{acquiring, 0}, {held, 0}, {lost, 0}, {kept, 0}, {releasing, leaveQueue | countHeldTime | unregister}, {gone, 0}},
	releaseRefused:  {{acquiring, 0}, {held, 0}, {lost, 0}, {kept, 0}, {lost, 0}, {gone, 0}},
	nodesReleased:   {{acquiring, 0}, {held, 0}, {lost, 0}, {kept, 0}, {gone, 0}, {gone, 0}},
	lossRemembered:  {{acquiring, rememberLoss}, {held, rememberLoss}, {lost, rememberLoss}, {kept, rememberLoss}, {releasing, rememberLoss}, {gone, rememberLoss}},
	dropped:         {{acquiring, unregister | deleteRecord}, {held, unregister | deleteRecord}, {lost, unregister | deleteRecord}, {kept, unregister}, {releasing, unregister}, {gone, unregister | deleteRecord}},
}

// lifeIn returns the life of a lease that a client knows.
func lifeIn(state leaseState) leaseLife {
	knows := map[leaseState]clientKnows{acquiring: knowsNothing, held: knowsGrant, lost: knowsLoss, kept: knowsGrant, releasing: knowsGrant, gone: knowsLoss}
	return leaseLife{state: state, knows: knows[state]}
}

func TestEveryEventInEveryState(t *testing.T) {
	for event, row := range lifeTable {
		if len(row) != len(leaseStates) {
			t.Fatalf("event %d has %d columns, want one for each state", event, len(row))
		}
		for i, want := range row {
			next, do := lifeIn(leaseStates[i]).after(leaseEvent(event))
			if next.state != want.next || do != want.do {
				t.Errorf("event %d in state %d: got state %d and actions %b, want state %d and actions %b",
					event, leaseStates[i], next.state, do, want.next, want.do)
			}
		}
	}
}

// Host.perform has a case for each action, and no other code gets actions that it could forget: only
// Host.applyIf calls heldLease.change, and only that calls leaseLife.after.
func TestEveryActionIsPerformed(t *testing.T) {
	var actions, cases []string
	callers := map[string][]string{} // by method
	for _, file := range sourceFiles(t) {
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.GenDecl:
				actions = append(actions, constantsOf(decl, "leaseActions")...)
			case *ast.FuncDecl:
				ast.Inspect(decl, func(n ast.Node) bool {
					switch n := n.(type) {
					case *ast.CaseClause:
						for _, value := range n.List {
							if name, ok := value.(*ast.Ident); ok && decl.Name.Name == "perform" {
								cases = append(cases, name.Name)
							}
						}
					case *ast.SelectorExpr:
						if name := n.Sel.Name; name == "perform" || name == "change" && !isIdent(n.X, "l") || name == "after" {
							callers[name] = append(callers[name], decl.Name.Name)
						}
					}
					return true
				})
			}
		}
	}
	if len(actions) == 0 || !slices.Equal(cases, actions) {
		t.Errorf("perform has the cases %v, want one for each action, in their order: %v", cases, actions)
	}
	for method, want := range map[string]string{"perform": "applyIf", "change": "applyIf", "after": "change"} {
		if got := callers[method]; !slices.Equal(got, []string{want}) {
			t.Errorf("%s is called by %v, want only %s", method, got, want)
		}
	}
}

// sourceFiles returns the files of this package, except tests.
func sourceFiles(t *testing.T) (files []*ast.File) {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// constantsOf returns the names of the constants of a type, if decl declares them in one block.
func constantsOf(decl *ast.GenDecl, typeName string) (names []string) {
	first, ok := decl.Specs[0].(*ast.ValueSpec)
	if !ok || decl.Tok != token.CONST || !isIdent(first.Type, typeName) {
		return nil
	}
	for _, spec := range decl.Specs {
		names = append(names, spec.(*ast.ValueSpec).Names[0].Name)
	}
	return names
}

func isIdent(x ast.Expr, name string) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Name == name
}

// LOST is sent once, and never before the OK of the LOCK.
func TestLostFollowsTheGrant(t *testing.T) {
	for _, test := range []struct {
		events []leaseEvent
		sends  int // the index of the event that sends LOST; -1: none
	}{
		{[]leaseEvent{wasGranted, grantReported, wasLost, wasLost}, 2},
		{[]leaseEvent{wasGranted, wasLost, grantReported, grantReported}, 2},
		{[]leaseEvent{wasLost, wasGranted, deadlinePassed, grantReported}, 3},
		{[]leaseEvent{wasGranted, grantReported, extensionsEnded, wasLost}, 3},
		{[]leaseEvent{wasGranted, grantReported, extensionsEnded, deadlinePassed}, -1},
		{[]leaseEvent{wasGranted, grantReported, lastUnlock, releaseRefused, wasLost}, 4},
		{[]leaseEvent{wasLost, wasGranted, deadlinePassed}, -1},
	} {
		life, sent := leaseLife{}, -1
		for i, event := range test.events {
			next, do := life.after(event)
			if life = next; do.has(sendLost) {
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
	remembered, _ := leaseLife{state: lost, knows: knowsLoss}.after(lossRemembered)
	if _, do := remembered.after(lossRemembered); do != 0 {
		t.Errorf("lossKept again: actions %b", do)
	}
	over, do := remembered.after(dropped)
	if do != unregister|uncountLoss|deleteRecord {
		t.Errorf("dropped: actions %b", do)
	}
	for event := range leaseEventCount {
		if _, do := over.after(event); do.has(unregister | uncountLoss | deleteRecord | rememberLoss) {
			t.Errorf("event %d after dropped: actions %b", event, do)
		}
	}
	refused, _ := lifeIn(releasing).after(dropped)
	if next, do := refused.after(releaseRefused); next.state != lost || do != deleteRecord {
		t.Errorf("releaseRefused after dropped: state %d, actions %b; want lost, and the record deleted", next.state, do)
	}
}

// If the client ends while its lost lease is being remembered, nothing of the lease stays.
func TestLossIsNotRememberedTooLate(t *testing.T) {
	d, s := readyHost(t), &session{}
	lease, err := d.Nodes.Acquire(t.Context(), redlock.Request{Name: "a", TTL: 10 * time.Second, Wait: -1})
	if err != nil {
		t.Fatal(err)
	}
	h := &heldLease{session: s, index: &s.leases, life: lifeIn(lost), lease: lease}
	h.waiter.Init([]string{"a"}, waitqueue.Kind{}, false, &h.Requester, nil)
	do := h.change(lossRemembered, nil)
	d.forget(h)
	d.perform(h, do, 0)
	if len(s.leases.lost) > 0 || !d.Limits.IsEmpty() {
		t.Errorf("%d lost leases are left on the connection, and counted: %v", len(s.leases.lost), !d.Limits.IsEmpty())
	}
}

// A lease that is lost before its client got the grant does not count as held.
func TestUnansweredLeaseDoesNotCountAsHeld(t *testing.T) {
	unanswered, _ := leaseLife{}.after(wasLost)
	if _, do := unanswered.after(deadlinePassed); do != leaveQueue {
		t.Errorf("a lease that was lost before its LOCK was answered: actions %b, want only leaveQueue", do)
	}
}

// On every path through the states, a lease leaves the queue once, is released once, and counts in
// the metrics only when it has left. No lease leaves the state gone.
func TestLeaseEndsOnce(t *testing.T) {
	type path struct {
		life leaseLife
		once leaseActions // what was done already

		released bool
	}
	const single = leaveQueue | countHeldTime | sendLost | unregister | uncountLoss | rememberLoss
	seen := map[path]bool{{}: true}
	for todo := []path{{}}; len(todo) > 0; {
		now := todo[0]
		todo = todo[1:]
		for event := range leaseEventCount {
			next, do := now.life.after(event)
			if now.released && slices.Contains([]leaseEvent{releaseBegun, releaseRefused, wasLost, extensionsEnded}, event) {
				continue // a redlock.Lease ends once
			}
			if again := now.once & do & single; again != 0 {
				t.Fatalf("event %d at %+v does %b again", event, now, again)
			}
			if do.has(countHeldTime) && !do.has(leaveQueue) {
				t.Fatalf("event %d at %+v counts the time of a lease that stays in the queue", event, now)
			}
			if now.life.state == gone && next.state != gone {
				t.Fatalf("event %d at %+v leads to state %d", event, now, next.state)
			}
			released := now.released || event == releaseBegun && now.life.state == releasing
			if then := (path{next, now.once | do&single, released}); !seen[then] {
				seen[then] = true
				todo = append(todo, then)
			}
		}
	}
}

// FORCE can take a lease away before its LOCK knows of the grant. Then nothing may read the lease:
// see heldLease.lease.
func TestForceBeforeLockSeesTheGrant(t *testing.T) {
	d := readyHost(t)
	h := &heldLease{}
	h.waiter.Init([]string{"a"}, waitqueue.Kind{}, false, &h.Requester, nil)
	if err := d.Queue.Join(&h.waiter); err != nil {
		t.Fatal(err)
	}
	lease, err := d.Nodes.Acquire(t.Context(), redlock.Request{Name: "a", TTL: 10 * time.Second, Wait: -1})
	if err != nil {
		t.Fatal(err)
	}
	lease.Lose(redlock.LostForced)
	d.leaseLost(h, lease)
	if d.Queue.Len() != 0 {
		t.Error("the lease is in the queue although other clients can get the lock")
	}
}
