package redlock

import (
	"errors"
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
// What one node says alone is not believed where a quorum has others that could say it,
// too: it could keep all the rest from voting.
type register struct {
	names   []string // of the nodes, by index
	sources int      // so many others must say a word
	enough  int      // so many others that say it have one in each quorum

	mu      sync.Mutex      // guards what follows
	last    []string        // by node: the latest word that is believed
	toldAt  []time.Duration // by node: BootTime since when enough others say that; 0: they do not
	said    [][]string      // by node, by the one that it is of: the word that stands there
	outdone []atomic.Bool   // by node: its lane saw an earlier one, and has not looked since
}

// mostSources is how many others must say a word: one may be wrong.
const mostSources = 2

func newRegister(nodes []Node, quorum int) *register {
	r := &register{
		sources: max(1, min(mostSources, quorum-1)),
		enough:  len(nodes) - quorum + 1,
		last:    make([]string, len(nodes)),
		toldAt:  make([]time.Duration, len(nodes)),
		said:    make([][]string, len(nodes)),
		outdone: make([]atomic.Bool, len(nodes)),
	}
	for i, node := range nodes {
		r.names = append(r.names, node.Name)
		r.said[i] = make([]string, len(nodes))
	}
	return r
}

var errOutdone = errors.New("another Redis has come after this one under its name (a former one is back; or its address is not the same on every host, or leads to one of several), and this one may know nothing of the votes given there: have it lead to one, from every host")

// see takes in the word of the epoch that a node's lane sees, and tells whether it is news
// for the other nodes. An error: there is a later one, and with it votes that this one
// knows nothing of.
func (r *register) see(node int, word string) (news bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if isLater(r.last[node], word) {
		return false, errOutdone
	}
	r.outdone[node].Store(false)
	if r.last[node] == word || !isWord(word) {
		return false, nil
	}
	r.last[node], r.toldAt[node] = word, 0
	return true, nil
}

// note takes in what stands at a node, and returns of which nodes a later word is believed
// by that than their lanes have seen: no vote counts that these hear.
func (r *register) note(from int, words string, at time.Duration) (outdone []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read(from, words)
	for node := range r.last {
		if claimed := r.claimed(node, r.sources); isLater(claimed, r.last[node]) {
			r.outdone[node].Store(true)
			r.last[node], r.toldAt[node] = claimed, 0
			outdone = append(outdone, node)
		}
		if r.toldAt[node] == 0 && !isLater(r.last[node], r.claimed(node, r.enough)) {
			r.toldAt[node] = at
		}
	}
	return outdone
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

// claimed is the latest word of a node that so many others say, or a later one. It needs mu.
func (r *register) claimed(node, sources int) string {
	words := make([]string, len(r.said))
	for from := range r.said {
		words[from] = r.said[from][node]
	}
	slices.SortFunc(words, compareWords)
	return words[max(0, len(words)-sources)]
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

// owed is what is to stand at a node; "": it does already.
func (r *register) owed(to int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lacks := false
	var entries []string
	for node, word := range r.said[to] {
		if node != to && isLater(r.last[node], word) {
			word, lacks = r.last[node], true
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
