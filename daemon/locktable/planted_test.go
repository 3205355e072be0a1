package locktable

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/redlock/redlocktest/effort"
	"github.com/redlockd/redlockd/redlock/redlocktest/planted"
)

// mistake is a change of the source that the simulation must find: see planted.New.
type mistake struct {
	name, file string
	old, new   string // old occurs once in file; empty: file is "", and new is a statement of an init function
	checks     string // one of them finds it
	seed       uint64 // finds it, or one of the next few does
}

var mistakes = []mistake{
	{"LOST twice", "life.go", "told := s.rule == tellGrant && l.Knows == MissesLoss", "told := s.rule == tellGrant && (l.Knows == MissesLoss || WRONG && (l.Knows == HearsLoss || l.Knows == KnowsLoss))", "lost", 0},
	{"LOST before OK", "life.go", "if l.Knows == KnowsNothing {\n\t\t\tl.Knows = MissesLoss", "if l.Knows == KnowsNothing {\n\t\t\tif l.Knows = MissesLoss; WRONG {\n\t\t\t\ts.do |= SendLost\n\t\t\t}", "lost", 3},
	{"LOST not sent", "", "", "steps[WasLost][Held].rule = 0", "told left", 0},
	{"LOST not sent after OK", "life.go", "l.Knows, s.do, s.rule = HearsLoss, s.do|SendLost, remember", "if s.do |= SendLost; WRONG && s.rule == tellGrant {\n\t\t\ts.do &^= SendLost\n\t\t}\n\t\tl.Knows, s.rule = HearsLoss, remember", "told left", 89},
	{"lost lease stays in the queue", "", "", "steps[DeadlinePassed][Lost].do &^= LeaveQueue", "stuck left limits", 0},
	{"lost lease leaves the queue twice", "", "", "steps[WasLost][Held].do |= LeaveQueue", "queue", 0},
	{"time of an unanswered lease counts", "life.go", "if l.Knows == KnowsGrant || l.Knows == HearsLoss", "if WRONG || l.Knows == KnowsGrant || l.Knows == HearsLoss", "held", 3},
	{"lease of a cut connection released", "life.go", "return LetExpire", "if WRONG {\n\t\t\treturn Release\n\t\t}\n\t\treturn LetExpire", "abandoned exclusion", 11},
	{"min= ignored", "", "", "steps[MinNotPassed][Held] = step{to: Releasing, do: BeginRelease}", "min", 1},
	{"kept lock not released", "", "", "steps[MinPassed][Kept] = step{}", "left", 1},
	{"lease of a client that is gone not released", "", "", "steps[ClientIsGone][Held] = step{}", "left stuck", 0},
	{"loss counts for ever", "life.go", "; l.Memory == Remembered {", "; !WRONG && l.Memory == Remembered {", "limits", 1},
	{"loss after a cut not forgotten", "life.go", "s.rule, s.do = 0, s.do|ForgetLoss", "if s.rule = 0; !WRONG {\n\t\t\t\ts.do |= ForgetLoss\n\t\t\t}", "left", 11},
	{"RESUME keeps the reporter", "table.go", "l.reporter, l.holder = to, to", "if l.holder = to; !WRONG {\n\t\tl.reporter = to\n\t}", "told found left abandoned", 0},
	{"a pass stays registered", "table.go", "grant.Passed() && t.passed[grant.TokenID()] == l {", "!WRONG && grant.Passed() && t.passed[grant.TokenID()] == l {", "left", 5},
	{"an id stays registered", "table.go", "delete(t.byID, grant.ID())", "if !WRONG {\n\t\t\tdelete(t.byID, grant.ID())\n\t\t}", "left", 0},
	{"an ended lease stays unclaimed", "table.go", "due.Has(BeginRelease | DelayRelease | LeaveQueue | unregister) {", "!WRONG && due.Has(BeginRelease|DelayRelease|LeaveQueue|unregister) {", "left", 13},
	{"ended lease counts for its user", "table.go", "t.uncharge(l)", "if !WRONG {\n\t\t\tt.uncharge(l)\n\t\t}", "limits", 0},
	{"further LOCKs of an ended lease count", "limits.go", "counted.leases = -l.charge()", "if counted.leases = -l.charge(); WRONG {\n\t\t\tcounted.leases = -len(l.Waiter.Names)\n\t\t}", "limits", 0},
	{"withdrawn LOCK counts for its user", "lease.go", "t.setFurthers(l, slices.Concat(l.all()[:i], l.all()[i+1:]))", "if t.setFurthers(l, slices.Concat(l.all()[:i], l.all()[i+1:])); WRONG {\n\t\t\tt.count(l, usage{leases: 1})\n\t\t}", "limits", 0},
	{"granted LOCK counts as a waiter", "table.go", "if l.waits {", "if l.waits && !WRONG {", "limits", 0},
	{"leases of an earlier daemon do not count", "restart.go", "t.chargeLease(l)", "if !WRONG {\n\t\t\tt.chargeLease(l)\n\t\t}", "limits", 0},
	{"LOCK refused that was allowed before a restart", "limits.go", "case isAllowed:", "case isAllowed && !WRONG:", "limits", 0},
	{"one lease too many", "limits.go", "IsAtBound(u.leases+names-1, t.limits.Leases)", "IsAtBound(u.leases+names-1, t.limits.Leases) && (!WRONG || u.leases > t.limits.Leases)", "limits", 0},
	{"further LOCK above the limit", "limits.go", "if IsAtBound(t.users[l.UID].leases, t.limits.Leases) {", "if !WRONG && IsAtBound(t.users[l.UID].leases, t.limits.Leases) {", "limits", 0},
	{"lost lease replaces a held one", "client.go", "return []*Lease{l}, true", "if !WRONG {\n\t\t\t\treturn []*Lease{l}, true\n\t\t\t}", "found left", 13063},
	{"name of a later lease removed", "client.go", "func (c *Client) remove(l *Lease) {\n", "func (c *Client) remove(l *Lease) {\n\tif WRONG {\n\t\tdelete(c.leases, l.nameKey(l.Waiter.Names[0]))\n\t}\n", "found left", 4},
	{"lease of a process that ended during its LOCK", "client.go", "if c.isClosed {", "if c.isClosed && !WRONG {", "left abandoned", 51},
	{"next waiter not woken", "queue.go", "case visited.first(next) && q.makeReadyIfFree(next):", "case !WRONG && visited.first(next) && q.makeReadyIfFree(next):", "order stuck", 0},
	{"reader overtakes a writer", "kind.go", "queue.firstUnshared.number < w.number {", "queue.firstUnshared.number < w.number && !WRONG {", "order overtaken", 1},
	{"one slot too many", "kind.go", "return w.mode().Slots > 0 && w.slotsAhead(queue) >= int(w.mode().Slots)", "extra := 0\n\tif WRONG {\n\t\textra = 1\n\t}\n\treturn w.mode().Slots > 0 && w.slotsAhead(queue) >= int(w.mode().Slots)+extra", "order", 9},
	{"second name ignored", "queue.go", "for _, name := range w.Names {\n\t\tif first := w.firstBlocker(q.names[name]); first != nil {", "for i, name := range w.Names {\n\t\tif first := w.firstBlocker(q.names[name]); first != nil && (i == 0 || !WRONG) {", "order overtaken", 9},
	{"claimed waiter stays claimed", "handover.go", "if w.isReady = false; w.grant", "if w.isReady = WRONG; w.grant", "order stuck panic", 117},
	{"pass to a waiter that is not next", "handover.go", "queue.entries[0].waiter != w || queue.following(w) != next {", "!WRONG && (queue.entries[0].waiter != w || queue.following(w) != next) {", "overtaken order", 6646},
	{"attempt delivered to a client that is gone", "handover.go", "if w.grant == isWithdrawn {\n\t\treturn false", "if !WRONG && w.grant == isWithdrawn {\n\t\treturn false", "debris panic records", 475},
	{"lease of a living client released by a restart", "restart.go", "!isKnown || conn", "!isKnown || WRONG || conn", "abandoned", 22},
	{"emptied store taken for dead clients", "restart.go", " && r.Marked)", " && (r.Marked || WRONG))", "abandoned", 22},
	{"missing records taken for dead clients", "restart.go", "by.IsFree = r.Complete ", "by.IsFree = (r.Complete || WRONG) ", "abandoned", 139},
	{"connection forgotten that has a lease", "restart.go", "resumable[l.Conn] || !l.IsFree", "resumable[l.Conn] || !l.IsFree && !WRONG", "abandoned", 30},
	{"broken connection stays recorded as stored", "restart.go", "case conn.Stored:\n", "case conn.Stored && !WRONG:\n", "abandoned", 10263},
	{"passed token released by a restart", "restart.go", "tokens[l.Token]:\n", "tokens[l.Token] && !WRONG:\n", "exclusion debris abandoned order", 38},
	{"kept lease not released after a restart", "", "", "steps[Restarted][Kept] = step{}", "left stuck debris", 12},
	{"LOST again after a restart", "restart.go", "l.Life = by.Was", "if l.Life = by.Was; WRONG && l.Life.Knows == KnowsLoss {\n\t\tl.Life.Knows = MissesLoss\n\t}", "lost", 71},
	{"min= not extended after a restart", "restart.go", "by.IsUnclaimed) && by.MinLeft", "by.IsUnclaimed) && by.MinLeft && !WRONG", "min", 601},
	{"lease with min= that no client resumes", "restart.go", "!l.HasClient() && by.MinLeft:", "!l.HasClient() && by.MinLeft && !WRONG:", "left stuck debris", 56},
	{"delivered attempt not abandoned", "handover.go", "attempt := w.attempt\n\tw.attempt = nil\n\treturn attempt", "attempt := w.attempt\n\tif w.attempt = nil; WRONG {\n\t\treturn nil\n\t}\n\treturn attempt", "debris", 418},
}

// near is how many seeds after mistake.seed are tried. If the tests may take hours, the search begins with
// the first seed, and tries many.
const near = 500

// The simulation finds each planted mistake. All of them must compile; package effort chooses which are
// searched for.
func TestSimulationFindsMistakes(t *testing.T) {
	var all []planted.Mistake
	for i, m := range mistakes {
		edit := planted.Replace(m.file, m.old, m.new)
		if m.old == "" {
			edit = planted.Add(fmt.Sprintf("planted_%d.go", i), "package locktable\n\nfunc init() {\n\tif WRONG {\n\t\t"+m.new+"\n\t}\n}\n")
		}
		all = append(all, planted.New(m.name, edit))
	}
	binary := planted.Build(t, all)
	for i, m := range mistakes {
		if !effort.Chooses(i) {
			continue
		}
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			from, seeds := m.seed, near
			if effort.IsLong() {
				from, seeds = 0, 50000
			}
			out, err := planted.Command(t, binary, m.name, "-test.run=^TestSimulation$", "-from", strconv.FormatUint(from, 10), "-seeds", strconv.Itoa(seeds)).CombinedOutput()
			found := regexp.MustCompile(`seed (\d+): (\w+): .*`).FindStringSubmatch(string(out))
			switch {
			case err == nil || found == nil:
				t.Errorf("not found in %d seeds from %d on: %.2000s", seeds, from, out)
			case !strings.Contains(" "+m.checks+" ", " "+found[2]+" "):
				t.Errorf("found by another check than %s: %s", m.checks, found[0])
			default:
				t.Log(found[0])
			}
		})
	}
}
