package admission

import (
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/quorum"
)

// incarnationRegister knows the last incarnation of each node: the last one that this process has
// seen, or that others have seen and reported on the other nodes. (The field words of a node's
// hash has the words of the other nodes' epochs.) If a host reaches another Redis under a node's
// name than the other hosts do, it learns this, even if it never saw that Redis. It then no
// longer trusts the epoch that it sees. (Either the address was changed host by host, or it leads
// to one of two servers, or it led elsewhere for a while.)
//
// A later word that others report is believed, with one exception: if the admitted nodes that
// answer and do not report it would form a quorum together with the node. In that case no such
// incarnation can vote yet (see isKnownLongEnough), and the report may be a lie. So a single node
// cannot exclude another from voting.
type incarnationRegister struct {
	names []string        // of the nodes, by index
	lists []quorum.System // both lists of a change of the nodes; or the only one

	mu              sync.Mutex        // guards what follows; no other mutex is taken inside it
	seen            []string          // by node: the latest word that its lane saw
	latest          []string          // by node: the latest word that is believed
	reported        [][]string        // by reporting node, by node: the word that it reports
	voting          []bool            // by node: it was admitted, and can be reached
	voted           []bool            // by node: it once was
	lookedAt        []time.Duration   // BootTime when its reports were requested, see noteLook
	supersededSince []time.Duration   // by node: BootTime since when latest is later than seen
	knownFrom       [][]time.Duration // by list, by node: BootTime since when enough other nodes of the list report latest; 0: not enough do
	superseded      []atomic.Bool     // by node: latest is later than seen
}

func newIncarnationRegister(names []string, lists []quorum.System) *incarnationRegister {
	n := len(names)
	r := &incarnationRegister{
		names: names, lists: lists,
		seen: make([]string, n), latest: make([]string, n), reported: make([][]string, n), voting: make([]bool, n), voted: make([]bool, n),
		lookedAt: make([]time.Duration, n), supersededSince: make([]time.Duration, n), superseded: make([]atomic.Bool, n),
	}
	for range lists {
		r.knownFrom = append(r.knownFrom, make([]time.Duration, n))
	}
	for i := range names {
		r.reported[i] = make([]string, n)
	}
	return r
}

// ErrSuperseded means that a later incarnation of the node is known than the one that answers.
var ErrSuperseded = errors.New("another Redis has come after this one under its name (a former one is back; or its address is not the same on every host, or leads to one of several), and this one may not know the votes given there: make the address lead to the same Redis from every host")

// errMaybeSuperseded means that a later incarnation is reported, but this is not certain until
// all reachable nodes were looked at.
var errMaybeSuperseded = errors.New("perhaps superseded")

// LookInterval is the time between two looks at each node.
const LookInterval = time.Second

// settleTime is how long a later word must be believed before it causes a quarantine. When a
// process has just started, or has lost many connections, some nodes are looked at before others.
const settleTime = LookInterval / 4

// noteSeen records the word of the epoch that a node's lane sees. If isNew is true, the word must be
// written to the other nodes. An error means that there is a later word, and with it votes that
// this incarnation does not know.
func (r *incarnationRegister) noteSeen(node int, word string, at time.Duration) (isNew bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if isLater(r.seen[node], word) {
		return false, ErrSuperseded
	}
	if isNew = r.seen[node] != word && isWord(word); isNew {
		r.seen[node] = word
	}
	r.reviewLocked(at)
	switch {
	case !r.superseded[node].Load():
		return isNew, nil
	case at-r.supersededSince[node] < settleTime:
		return isNew, errMaybeSuperseded
	}
	return isNew, ErrSuperseded
}

// noteReports records the reports of a node. It returns the nodes that these superseded: their
// votes no longer count.
func (r *incarnationRegister) noteReports(from int, reports string, at time.Duration) (superseded []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parseReportsLocked(from, reports)
	return r.reviewLocked(at)
}

// noteLook does what noteReports does, and also records whether the node was admitted when it was
// asked.
func (r *incarnationRegister) noteLook(from int, reports string, voting bool, asked, at time.Duration) (superseded []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parseReportsLocked(from, reports)
	r.voting[from], r.voted[from], r.lookedAt[from] = voting, voting || r.voted[from], asked
	return r.reviewLocked(at)
}

// Freshness is how recent this process's knowledge of the nodes' reports was when it sent a
// ballot.
type Freshness struct {
	Since       time.Duration // BootTime since when the reports of the voting nodes that answer are known; never: no such node
	Silent      quorum.Set    // voting nodes that do not answer
	SilentSince time.Duration // the same for the reports of these nodes
}

const never time.Duration = math.MaxInt64

// maxStaleness is how old a host's knowledge of the other nodes may be while votes count for all
// of max_ttl: each node is looked at once per LookInterval.
const maxStaleness = LookInterval + LookInterval/2

// freshness returns what is known now. A node that can no longer be reached no longer counts as a
// dissenter. freshness returns the nodes that become superseded by that.
func (r *incarnationRegister) freshness(at time.Duration) (f Freshness, superseded []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.Since, f.SilentSince = never, never
	for node, voting := range r.voting {
		switch {
		case !voting:
		case r.isSilentLocked(node, at):
			f.Silent |= quorum.Of(node)
			f.SilentSince = min(f.SilentSince, r.lookedAt[node])
		default:
			f.Since = min(f.Since, r.lookedAt[node])
		}
	}
	if f.Silent != 0 {
		superseded = r.reviewLocked(at)
	}
	return f, superseded
}

// isSilentLocked reports whether the node's reports are older than maxStaleness: it hangs, or this
// process or host was stopped. The caller holds mu.
func (r *incarnationRegister) isSilentLocked(node int, at time.Duration) bool {
	return at-r.lookedAt[node] > maxStaleness
}

// noteNotVoting records that a node cannot be reached, or is refused, until it is looked at again.
func (r *incarnationRegister) noteNotVoting(node int, at time.Duration) (superseded []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.voting[node] {
		return nil
	}
	r.voting[node] = false
	return r.reviewLocked(at)
}

// votes reports whether a node was admitted and can be reached, as far as this process knows.
func (r *incarnationRegister) votes(node int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.voting[node]
}

// parseReportsLocked parses reports. The caller holds mu.
func (r *incarnationRegister) parseReportsLocked(from int, reports string) {
	clear(r.reported[from])
	for entry := range strings.SplitSeq(reports, ",") {
		name, word, _ := strings.Cut(entry, "=")
		node := slices.Index(r.names, name)
		if node >= 0 && node != from && isWord(word) {
			r.reported[from][node] = word
		}
	}
}

// reviewLocked decides which words are believed. It returns the nodes that became superseded by that.
// The caller holds mu.
func (r *incarnationRegister) reviewLocked(at time.Duration) (superseded []int) {
	for node, seen := range r.seen {
		if last := r.believedLocked(node, at); r.latest[node] != last {
			r.latest[node] = last
			for l := range r.lists {
				r.knownFrom[l][node] = 0
			}
		}
		is := isLater(r.latest[node], seen)
		if was := r.superseded[node].Swap(is); is && !was {
			r.supersededSince[node] = at
			superseded = append(superseded, node)
		}
		for l, list := range r.lists {
			switch enough := list.Blocks(r.reportersLocked(node, r.latest[node])); { // each quorum has one of them
			case !enough: // or no longer: another host wrote another word there at the same time
				r.knownFrom[l][node] = 0
			case r.knownFrom[l][node] == 0:
				r.knownFrom[l][node] = at
			}
		}
	}
	return superseded
}

// believedLocked returns the latest word of a node that its lane has seen, or that others report
// without too many dissenters. The caller holds mu.
func (r *incarnationRegister) believedLocked(node int, at time.Duration) string {
	word := r.seen[node]
	for from := range r.reported {
		if other := r.reported[from][node]; isLater(other, word) && !r.decide(r.dissentersLocked(node, other, at)|quorum.Of(node)) {
			word = other
		}
	}
	return word
}

// decide reports whether the nodes have a majority of each list.
func (r *incarnationRegister) decide(nodes quorum.Set) bool {
	return !slices.ContainsFunc(r.lists, func(list quorum.System) bool { return !list.Decides(nodes) })
}

// dissentersLocked returns the other nodes that may vote, answer, and do not report the word. The caller
// holds mu.
func (r *incarnationRegister) dissentersLocked(node int, word string, at time.Duration) (nodes quorum.Set) {
	for from, voting := range r.voting {
		if from != node && voting && !r.isSilentLocked(from, at) && isLater(word, r.reported[from][node]) {
			nodes |= quorum.Of(from)
		}
	}
	return nodes
}

// reportersLocked returns the other nodes that report the word or a later one. The caller holds mu.
func (r *incarnationRegister) reportersLocked(node int, word string) (nodes quorum.Set) {
	for from := range r.reported {
		if from != node && !isLater(word, r.reported[from][node]) {
			nodes |= quorum.Of(from)
		}
	}
	return nodes
}

// newest returns the latest believed word of a node.
func (r *incarnationRegister) newest(node int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.latest[node]
}

// knownSince returns since when enough other nodes of a list report the latest word of a node; 0:
// not enough do.
func (r *incarnationRegister) knownSince(list, node int) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.knownFrom[list][node]
}

// isCutOff reports whether other hosts reach a node that this process has not seen vote, and that
// node does not report the last word of this one. Those hosts may vote with it, and with another
// Redis under the name of this node.
func (r *incarnationRegister) isCutOff(node int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for other := range r.reported {
		if other != node && !r.voted[other] && r.isReachedByAnyLocked(other) && isLater(r.latest[node], r.reported[other][node]) {
			return true
		}
	}
	return false
}

// isReachedByAnyLocked reports whether any host has reached a node. The caller holds mu.
func (r *incarnationRegister) isReachedByAnyLocked(node int) bool {
	return r.seen[node] != "" || slices.ContainsFunc(r.reported, func(words []string) bool { return words[node] != "" })
}

// reportsFor returns the reports to write to a node: words that were seen here, but not reports of
// other nodes, which may be lies. "": the node has them already.
func (r *incarnationRegister) reportsFor(to int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lacks := false
	var entries []string
	for node, word := range r.reported[to] {
		if node != to && isLater(r.seen[node], word) {
			word, lacks = r.seen[node], true
		}
		if word != "" {
			entries = append(entries, r.names[node]+"="+word)
		}
	}
	if !lacks {
		return ""
	}
	return strings.Join(entries, ",")
}
