package redlocktest

import (
	"iter"
	"strconv"
	"strings"
	"sync"

	"github.com/redlockd/redlockd/redlock"
)

// releases are the tokens that a node was told to release, and did: none of them
// may be there later.
type releases struct {
	mu  sync.Mutex // guards what follows
	ids map[string]bool
}

// note notes what a command that was executed released.
func (r *releases) note(c redlock.Command, reply redlock.Reply) {
	for i, token := range releasedBy(c) {
		if i < len(reply.Array) && reply.Array[i].Err == nil {
			r.mu.Lock()
			r.ids[idOf(token)] = true
			r.mu.Unlock()
		}
	}
}

func (r *releases) has(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ids[id]
}

// forget: the node has data from elsewhere, or from before.
func (r *releases) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.ids)
}

// idOf is what makes a token unlike any other.
func idOf(token string) string {
	id, _, _ := strings.Cut(token, " ")
	return id
}

// releasedBy are the tokens that a call of ballot.lua releases, by operation: one
// has its token, and some have a ttl behind it.
func releasedBy(c redlock.Command) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		letters, args := operationsOf(c)
		for i, letter := range letters {
			switch letter {
			case 'w', 'c':
				continue
			case 'r':
				if !yield(i, args[0]) {
					return
				}
			case 'A', 'E', 'p', 'x':
				args = args[1:]
			}
			args = args[1:]
		}
	}
}

// operationsOf are the letters of a call of ballot.lua that releases something,
// and the arguments of its operations.
func operationsOf(c redlock.Command) (letters string, args []string) {
	if c[0] != "EVALSHA" || scriptsBySHA[c[1]].name != "ballot" {
		return "", nil
	}
	keys, _ := strconv.Atoi(c[2])
	letters, args = c[3+keys+2], c[3+keys+4:]
	if strings.IndexByte(letters, 'r') < 0 {
		return "", nil
	}
	return letters, args
}

// executes tells whether the node will do what a script's call says.
func (n *simNode) executes(c redlock.Command) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.refusal == nil && !n.state.replica && len(c) > 1 && n.state.scripts[c[1]]
}
