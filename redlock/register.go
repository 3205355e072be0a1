package redlock

import (
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// register is which incarnation of each node is the last one, as far as this process has
// seen it, or others have and said so on the other nodes: in the field words of a node's
// hash stand the words of the others' epochs. So whoever reaches another Redis under a
// node's name than the rest does (its address was changed host by host, leads to one of
// two, or led elsewhere for a while) finds out, also where he never saw that one, and
// believes the epoch no more that he sees.
//
// A later word that others say is believed, unless so many say nothing of it, were admitted
// and are heard that they and the node are a quorum: no such incarnation can vote yet
// (lane.isKnown), and who says so may lie. One node alone keeps no other from voting.
type register struct {
	names  []string // of the nodes, by index
	quorum int

	mu      sync.Mutex      // guards what follows
	seen    []string        // by node: the latest word that its lane saw
	last    []string        // by node: the latest one that is believed
	said    [][]string      // by node, by the one that it is of: the word that stands there
	voting  []bool          // by node: it was admitted, and can be asked
	voted   []bool          // by node: it ever was
	looked  []time.Duration // by node: BootTime at which it was asked what it says, see look
	since   []time.Duration // by node: BootTime since when last is later than seen
	toldAt  []time.Duration // by node: BootTime since when enough others say last; 0: they do not
	outdone []atomic.Bool   // by node: last is later than seen
}

func newRegister(nodes []Node, quorum int) *register {
	n := len(nodes)
	r := &register{
		quorum: quorum, seen: make([]string, n), last: make([]string, n), said: make([][]string, n), voting: make([]bool, n), voted: make([]bool, n), looked: make([]time.Duration, n),
		since: make([]time.Duration, n), toldAt: make([]time.Duration, n), outdone: make([]atomic.Bool, n),
	}
	for i, node := range nodes {
		r.names = append(r.names, node.Name)
		r.said[i] = make([]string, n)
	}
	return r
}

var errOutdone = errors.New("another Redis has come after this one under its name (a former one is back; or its address is not the same on every host, or leads to one of several), and this one may know nothing of the votes given there: have it lead to one, from every host")

// errDoubted: that is so, but not for certain before all that can be looked at have been.
var errDoubted = errors.New("perhaps outdone")

// settling is how long a later word is believed before a quarantine is begun for it: of a
// process that has just begun, or lost many connections, some lanes are sooner than others.
const settling = heartbeat / 4

// see takes in the word of the epoch that a node's lane sees, and tells whether it is news
// for the other nodes. An error: there is a later one, and with it votes that this one
// knows nothing of.
func (r *register) see(node int, word string, at time.Duration) (news bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if isLater(r.seen[node], word) {
		return false, errOutdone
	}
	if news = r.seen[node] != word && isWord(word); news {
		r.seen[node] = word
	}
	r.review(at)
	switch {
	case !r.outdone[node].Load():
		return news, nil
	case at-r.since[node] < settling:
		return news, errDoubted
	}
	return news, errOutdone
}

// note takes in what stands at a node, and returns of which nodes a later word is believed
// by that than their lanes have seen: no vote counts that these hear.
func (r *register) note(from int, words string, at time.Duration) (outdone []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read(from, words)
	return r.review(at)
}

// look is note, and takes in whether the node was admitted, which was asked then.
func (r *register) look(from int, words string, voting bool, asked, at time.Duration) (outdone []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read(from, words)
	r.voting[from], r.voted[from], r.looked[from] = voting, voting || r.voted[from], asked
	return r.review(at)
}

// awareness is what this process knew of what the nodes say when it asked them.
type awareness struct {
	since  time.Duration // since when it knows what those say that vote and are heard; never: none is
	silent uint64        // those that vote and are not, as bits
	before time.Duration // since when it knows what these said
}

// aware is what is known now. Where nodes are not heard any more, who are no dissenters
// then, it returns what is outdone by that, as note does.
func (r *register) aware(at time.Duration) (a awareness, outdone []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.since, a.before = never, never
	for node, voting := range r.voting {
		switch {
		case !voting:
		case r.isSilent(node, at):
			a.silent |= 1 << node
			a.before = min(a.before, r.looked[node])
		default:
			a.since = min(a.since, r.looked[node])
		}
	}
	if a.silent != 0 {
		outdone = r.review(at)
	}
	return a, outdone
}

const never time.Duration = math.MaxInt64

// isSilent tells whether what a node says is not known for longer than is counted on: it
// hangs, or this process or host was stopped. It needs mu.
func (r *register) isSilent(node int, at time.Duration) bool { return at-r.looked[node] > unaware }

// noVoter notes that a node cannot be asked, or is refused, until it is looked at again.
func (r *register) noVoter(node int, at time.Duration) (outdone []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.voting[node] {
		return nil
	}
	r.voting[node] = false
	return r.review(at)
}

// votes tells whether a node was admitted, and can be asked, as far as was seen.
func (r *register) votes(node int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.voting[node]
}

// read needs mu.
func (r *register) read(from int, words string) {
	clear(r.said[from])
	for entry := range strings.SplitSeq(words, ",") {
		name, word, _ := strings.Cut(entry, "=")
		node := slices.Index(r.names, name)
		if node >= 0 && node != from && isWord(word) {
			r.said[from][node] = word
		}
	}
}

// review finds out what is to be believed, and returns what is outdone by that and was not
// before. It needs mu.
func (r *register) review(at time.Duration) (outdone []int) {
	for node, seen := range r.seen {
		if last := r.believed(node, at); r.last[node] != last {
			r.last[node], r.toldAt[node] = last, 0
		}
		is := isLater(r.last[node], seen)
		if was := r.outdone[node].Swap(is); is && !was {
			r.since[node] = at
			outdone = append(outdone, node)
		}
		switch enough := r.sayers(node, r.last[node]) > len(r.names)-r.quorum; { // one of them is in each quorum
		case !enough: // or no more: who wrote another word there at the same time has not seen it
			r.toldAt[node] = 0
		case r.toldAt[node] == 0:
			r.toldAt[node] = at
		}
	}
	return outdone
}

// believed is the latest word of a node that its lane has seen, or others say and not too
// many do not. It needs mu.
func (r *register) believed(node int, at time.Duration) string {
	word := r.seen[node]
	for from := range r.said {
		if said := r.said[from][node]; isLater(said, word) && r.dissenters(node, said, at) < r.quorum-1 {
			word = said
		}
	}
	return word
}

// dissenters are how many others may vote, are heard and say nothing of a word. It needs
// mu.
func (r *register) dissenters(node int, word string, at time.Duration) (n int) {
	for from, voting := range r.voting {
		if from != node && voting && !r.isSilent(from, at) && isLater(word, r.said[from][node]) {
			n++
		}
	}
	return n
}

// sayers are how many others say a word, or a later one. It needs mu.
func (r *register) sayers(node int, word string) (n int) {
	for from := range r.said {
		if from != node && !isLater(word, r.said[from][node]) {
			n++
		}
	}
	return n
}

// newest is the latest word of a node that is believed.
func (r *register) newest(node int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last[node]
}

// told is since when enough others say the last word of a node; 0: they do not.
func (r *register) told(node int) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.toldAt[node]
}

// isAside tells whether another node, which this process has not seen vote, is reached by
// others, and does not say the last word of this one: they may vote with that one, and with
// another Redis under the name of this one.
func (r *register) isAside(node int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for other := range r.said {
		if other != node && !r.voted[other] && r.isHeardOf(other) && isLater(r.last[node], r.said[other][node]) {
			return true
		}
	}
	return false
}

// isHeardOf tells whether anybody has reached a node. It needs mu.
func (r *register) isHeardOf(node int) bool {
	return r.seen[node] != "" || slices.ContainsFunc(r.said, func(said []string) bool { return said[node] != "" })
}

// owed is what is to stand at a node, of what was seen and not of what others say, which
// may be a lie; "": it does already.
func (r *register) owed(to int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lacks := false
	var entries []string
	for node, word := range r.said[to] {
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
