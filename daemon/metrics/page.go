package metrics

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// The page shows the state of the daemon to operators, without JavaScript: the browser
// reloads it every pageRefresh.
const (
	pageRefresh  = 3 * time.Second
	maxPageLocks = 200
)

// pagePolicy forbids the browser to load anything, and other pages to frame this one.
const pagePolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Lock is a lease or a waiter of this host, for the page.
type Lock struct {
	Names []string
	State string // held, lost or waiting
	Mode  string
	User  string
	PID   int // 0: not known
	Since time.Duration
}

//go:embed page.html
var pageSource string

var pageTemplate = template.Must(template.New("page").Parse(pageSource))

// pageData is what the template shows.
type pageData struct {
	Host, Version, Verdict, At string
	Refresh                    int    // seconds
	Level                      string // good, risk or bad
	Gauges                     []gauge
	Nodes                      []pageNode
	Warnings                   []string
	ShowsLocks                 bool
	Locks                      []pageLock
	More                       int // locks that are not shown
}

type gauge struct{ ID, Name, Value string }

type pageNode struct {
	Name, Address, State string
	RTT, Write           string
	Level                string // good, risk or bad
	Notes                []string
}

type pageLock struct{ Names, State, Mode, User, PID, Since string }

// page answers with the status page.
func (s *Server) page(w http.ResponseWriter, _ *http.Request) {
	var html bytes.Buffer
	if err := pageTemplate.Execute(&html, s.pageData()); err != nil {
		s.Log.Error("the status page cannot be made", "error", err)
		answer(w, http.StatusInternalServerError, "the status page cannot be made: see the log\n")
		return
	}
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", pagePolicy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	w.Write(html.Bytes()) // the client may have disconnected
}

func (s *Server) pageData() pageData {
	now, snapshot := time.Now(), s.Snapshot()
	quorum := &snapshot.Quorum
	data := pageData{
		Host: s.Host, Version: snapshot.Version, At: now.Format(time.DateTime),
		Refresh: int(pageRefresh / time.Second),
		Level:   level(quorum), Verdict: verdict(quorum),
		Gauges:   gauges(&snapshot, s.rates.grantsPerSecond(now, quorum.Counts)),
		Warnings: quorum.Warning, ShowsLocks: s.Locks != nil,
	}
	if c := quorum.Change; c != nil {
		data.Warnings = append(slices.Clone(data.Warnings), fmt.Sprintf("change of the nodes (%s): %s", c.Step, c.Next(nil)))
	}
	for i := range quorum.Nodes {
		data.Nodes = append(data.Nodes, pageNodeOf(&quorum.Nodes[i]))
	}
	if s.Locks != nil {
		data.Locks, data.More = pageLocks(s.Locks())
	}
	return data
}

// level returns how well the fleet is, in one word. With one or two nodes, none may ever fail.
func level(quorum *redlock.Status) string {
	switch spare := quorum.Spare(); {
	case spare < 0:
		return "bad"
	case spare == 0 && len(quorum.Nodes) > 2:
		return "risk"
	}
	return "good"
}

func verdict(quorum *redlock.Status) string {
	switch spare := quorum.Spare(); {
	case spare < 0 && quorum.Left > 0:
		return fmt.Sprintf("no locks yet: nodes are in quarantine for %v", wholeSeconds(quorum.Left))
	case spare < 0:
		return fmt.Sprintf("no locks: %d of %d nodes may vote, %d are needed", quorum.Ready, len(quorum.Nodes), quorum.Quorum)
	case spare == 0:
		return "locks can be taken; no node may fail"
	case spare == 1:
		return "locks can be taken; 1 node may fail"
	default:
		return fmt.Sprintf("locks can be taken; %d nodes may fail", spare)
	}
}

func gauges(s *Snapshot, perSecond string) []gauge {
	return []gauge{
		{"ready", "nodes that may vote", fmt.Sprintf("%d of %d", s.Quorum.Ready, len(s.Quorum.Nodes))},
		{"leases", "leases held", strconv.Itoa(s.Leases)},
		{"waiters", "waiters", strconv.Itoa(s.Waiters)},
		{"longest", "longest queue", strconv.Itoa(s.LongestQueue)},
		{"connections", "connections", strconv.Itoa(s.Connections)},
		{"grants", "grants", strconv.FormatUint(s.Quorum.Counts.Grants, 10)},
		{"rate", "grants a second", perSecond},
		{"lost", "leases lost", strconv.FormatUint(s.Quorum.Counts.Lost, 10)},
	}
}

func pageNodeOf(n *redlock.NodeStatus) pageNode {
	node := pageNode{Name: n.Name, Address: n.Address, State: string(n.State), Level: "bad"}
	switch {
	case n.State == redlock.NodeReady && n.Reason == nil && n.OtherWarnings() == nil:
		node.Level = "good"
	case n.State == redlock.NodeReady || n.State == redlock.NodeQuarantined || n.State == redlock.NodeConnecting:
		node.Level = "risk"
	}
	node.RTT, node.Write = trip(n.RTT), trip(n.Write)
	if n.Left > 0 {
		node.State += fmt.Sprintf(" for %v", wholeSeconds(n.Left))
	}
	if n.Step != "" {
		node.Notes = append(node.Notes, "step of the change of the nodes: "+n.Step)
	}
	if n.Reason != nil {
		node.Notes = append(node.Notes, n.Reason.Error())
	}
	node.Notes = append(node.Notes, n.OtherWarnings()...)
	return node
}

// trip returns how long calls took; "": not known.
func trip(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.Round(10 * time.Microsecond).String()
}

// pageLocks returns the waiters, then the leases, the oldest first in each part.
func pageLocks(locks []Lock) (shown []pageLock, more int) {
	slices.SortStableFunc(locks, func(a, b Lock) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.Since, a.Since))
	})
	more = max(len(locks)-maxPageLocks, 0)
	for _, l := range locks[:len(locks)-more] {
		row := pageLock{Names: strings.Join(l.Names, ", "), State: l.State, Mode: l.Mode, User: l.User, Since: wholeSeconds(l.Since).String()}
		if l.PID != 0 {
			row.PID = strconv.Itoa(l.PID)
		}
		shown = append(shown, row)
	}
	return shown, more
}

func rank(l Lock) int {
	if l.State == "waiting" {
		return 0
	}
	return 1
}

func wholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// rates measures the grants per second between two pages.
type rates struct {
	mu     sync.Mutex // guards the fields below; nothing is locked inside it
	lastAt time.Time  // of the last measurement; zero: no page was shown yet
	grants uint64
	latest string
}

// rateWindow is the shortest time over which a rate is measured.
const rateWindow = 2 * time.Second

// grantsPerSecond returns the grants per second since an earlier page, or "…" for the first page.
func (r *rates) grantsPerSecond(now time.Time, counts redlock.Counts) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	passed := now.Sub(r.lastAt)
	switch {
	case r.lastAt.IsZero():
		r.latest = "…"
	case passed < rateWindow:
		return r.latest
	default:
		r.latest = strconv.FormatFloat(float64(counts.Grants-r.grants)/passed.Seconds(), 'f', 1, 64)
	}
	r.lastAt, r.grants = now, counts.Grants
	return r.latest
}
