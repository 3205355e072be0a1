package simulation

import (
	"iter"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// releases are the tokens that a node was told to release, or that were forced
// away there, and did: none of them may be there later.
type releases struct {
	mu  sync.Mutex         // guards what follows
	ids map[[2]string]bool // by key and token
}

func (r *releases) add(key, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids[[2]string{key, id}] = true
}

func (r *releases) has(key, id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ids[[2]string{key, id}]
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
		w.record.command(n.Name(), c)
	}
	for i, op := range endingOperations(c) {
		switch answer := reply.Array; {
		case i >= len(answer) || answer[i].Err != nil:
		case op.letter == 'x':
			w.record.forced(idOf(op.token))
			if answer[i].Int == 1 {
				n.releases.add(op.key, idOf(op.token))
			}
		case op.letter == 'h' && len(answer[i].Array) > 1: // refused: another has it
		default:
			n.releases.add(op.key, idOf(op.token))
		}
	}
}

// idOf is what makes a token unlike any other.
func idOf(token string) string {
	id, rest, _ := strings.Cut(token, " ")
	if _, err := strconv.Atoi(id); err == nil { // the place of a semaphore
		id, _, _ = strings.Cut(rest, " ")
	}
	return id
}

// endingOperation is a release, a hand-over, or the use of force.
type endingOperation struct {
	letter     rune
	key, token string
}

// endingOperations are those of a call of ballot.lua, with their places in it. The
// token is the first of their arguments.
func endingOperations(c redlock.Command) iter.Seq2[int, endingOperation] {
	return func(yield func(int, endingOperation) bool) {
		letters, args := operationsOf(c)
		for i, letter := range letters {
			lower := unicode.ToLower(letter)
			words := wordsOf[lower]
			if lower != letter {
				words++
			}
			if strings.ContainsRune("rxh", lower) && !yield(i, endingOperation{lower, c[4+i], args[0]}) {
				return
			}
			args = args[words:]
		}
	}
}

// wordsOf is how many arguments operations have, but for a ttl that stands for
// others, too.
var wordsOf = map[rune]int{
	'a': 1, 'n': 1, 's': 2, 'h': 2, 'e': 1, 'r': 1, 'f': 1, 'p': 2, 'q': 3, 'x': 2, 'i': 2, 'k': 2, 'm': 2, 'd': 1,
}

// operationsOf are the letters of a call of ballot.lua that ends something, and
// the arguments of its operations.
func operationsOf(c redlock.Command) (letters string, args []string) {
	if redlocktest.ScriptName(c) != "ballot" {
		return "", nil
	}
	keys, _ := strconv.Atoi(c[2])
	letters, args = c[3+keys+2], c[3+keys+4:]
	if !strings.ContainsAny(letters, "rxhH") {
		return "", nil
	}
	return letters, args
}
