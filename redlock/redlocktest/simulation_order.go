package redlocktest

import (
	"iter"
	"strconv"
	"strings"
	"sync"

	"github.com/redlockd/redlockd/redlock"
)

// releases are the tokens that a node was told to release, or that were forced
// away there, and did: none of them may be there later.
type releases struct {
	mu  sync.Mutex // guards what follows
	ids map[string]bool
}

func (r *releases) add(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids[id] = true
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

// executed is told of each command that a node has executed.
func (w *world) executed(n *simNode, c redlock.Command, reply redlock.Reply) {
	if w.plan.Commands {
		w.record.command(n.name, c)
	}
	for i, op := range endingOperations(c) {
		switch answer := reply.Array; {
		case i >= len(answer) || answer[i].Err != nil:
		case op.letter == 'x':
			w.record.forced(idOf(op.token))
			if answer[i].Int == 1 {
				n.releases.add(idOf(op.token))
			}
		default:
			n.releases.add(idOf(op.token))
		}
	}
}

// idOf is what makes a token unlike any other.
func idOf(token string) string {
	id, _, _ := strings.Cut(token, " ")
	return id
}

// endingOperation is a release, or the use of force.
type endingOperation struct {
	letter rune
	token  string
}

// endingOperations are those of a call of ballot.lua, with their places in it. An
// operation has its token, and some have a ttl behind it.
func endingOperations(c redlock.Command) iter.Seq2[int, endingOperation] {
	return func(yield func(int, endingOperation) bool) {
		letters, args := operationsOf(c)
		for i, letter := range letters {
			if letter == 'w' || letter == 'c' {
				continue
			}
			if (letter == 'r' || letter == 'x') && !yield(i, endingOperation{letter, args[0]}) {
				return
			}
			if strings.ContainsRune("AEpx", letter) {
				args = args[1:]
			}
			args = args[1:]
		}
	}
}

// operationsOf are the letters of a call of ballot.lua that ends something, and
// the arguments of its operations.
func operationsOf(c redlock.Command) (letters string, args []string) {
	if c[0] != "EVALSHA" || scriptsBySHA[c[1]].name != "ballot" {
		return "", nil
	}
	keys, _ := strconv.Atoi(c[2])
	letters, args = c[3+keys+2], c[3+keys+4:]
	if !strings.ContainsAny(letters, "rx") {
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
