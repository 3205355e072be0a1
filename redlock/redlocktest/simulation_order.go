package redlocktest

import (
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

// note notes the releases of a command that is about to be executed.
func (r *releases) note(c redlock.Command) {
	for _, token := range releasedBy(c) {
		r.mu.Lock()
		r.ids[idOf(token)] = true
		r.mu.Unlock()
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

// releasedBy are the tokens that a call of ballot.lua releases: an operation has
// its token, and some have a ttl behind it.
func releasedBy(c redlock.Command) (tokens []string) {
	if c[0] != "EVALSHA" || scriptsBySHA[c[1]].name != "ballot" {
		return nil
	}
	keys, _ := strconv.Atoi(c[2])
	letters, args := c[3+keys+2], c[3+keys+4:]
	for _, letter := range letters {
		words := 1 + strings.Count("AEp", string(letter)) - strings.Count("wc", string(letter))
		if letter == 'r' {
			tokens = append(tokens, args[0])
		}
		args = args[words:]
	}
	return tokens
}

// executes tells whether the node will do what a script's call says.
func (n *simNode) executes(c redlock.Command) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.refusal == nil && !n.state.replica && len(c) > 1 && n.state.scripts[c[1]]
}
