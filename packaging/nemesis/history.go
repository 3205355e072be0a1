package main

import (
	"encoding/json"
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
	"golang.org/x/sys/unix"
)

// An instant is CLOCK_BOOTTIME, the clock of every deadline. It is the same for all
// processes of the host, so the histories of several clients can be compared.
type instant = time.Duration

// never is the end of a hold that has not ended.
const never = instant(math.MaxInt64)

func now() instant {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // exists on every Linux
	}
	return instant(t.Nano())
}

// A mode is how a lock is taken.
type mode string

const (
	exclusive mode = "exclusive"
	shared    mode = "shared"
	slots     mode = "slots" // for slotsOf holders at a time
)

const (
	slotCount  = 2
	largeKind  = 'l'  // names of semaphores with largeCount slots begin with it
	largeCount = 1000 // the most that a daemon allows
	manyNames  = 20   // how many names a LOCK of many has at most
)

// slotsOf returns the number of slots of a semaphore.
func slotsOf(name string) int {
	if rune(name[0]) == largeKind {
		return largeCount
	}
	return slotCount
}

// A hold is one grant as its client saw it.
type hold struct {
	ID    int64    `json:"id"` // unique in its client process
	Names []string `json:"names"`
	Mode  mode     `json:"mode"`
	Slot  string   `json:"slot,omitempty"`
	Fence uint64   `json:"fence,omitempty"` // 0: the contender has no tokens

	Asked   instant `json:"asked"`   // before the request was sent
	Granted instant `json:"granted"` // after the answer was read
	// Until is the last deadline that the client knew. It held the lock until then, or until Ended
	// if that was earlier.
	Until  instant `json:"until"`
	Ended  instant `json:"ended"`            // before the release was sent, or the loss was read; 0: not yet
	Reason string  `json:"reason,omitempty"` // why it ended

	mutex *redsync.Mutex // of the contender redsync, within its process
}

// end returns the instant up to which the client relied on the lock.
func (h *hold) end() instant {
	if h.Ended == 0 {
		return h.Until
	}
	return min(h.Ended, h.Until)
}

// json returns the text of a hold. It has only strings and numbers, so there is no error.
func (h *hold) json() json.RawMessage {
	text, err := json.Marshal(h)
	if err != nil {
		panic(err)
	}
	return text
}

// idleNames is how long a lock must not be mentioned before its history is complete: longer than
// the life of a name, plus a request, a hold and the faults of its client.
const idleNames = 60 * time.Second

// A history has the holds of one run. It forgets a lock after its check, so that a run may have any
// length.
type history struct {
	holds map[holdKey]*hold
	names map[string]*nameHistory
	open  map[int]int // by client: its holds that have not ended
	// excused are the times at which holders may have lost locks outside the promises.
	excused []excuse

	grants  map[mode]int
	reasons map[string]int // of the holds that have ended
	tooLate int            // lines about locks that were already forgotten
}

type holdKey struct {
	client int
	id     int64
}

// A nameHistory has all holds of one lock.
type nameHistory struct {
	holds   []*hold
	keys    []holdKey
	changed instant // when the last line about it was read
	live    instant // when checkLive last checked it
}

// An excuse is an interval in which a holder may have lost a lock outside the promises: an
// operator's FORCE, or a clock that jumped. Grants that were requested before its end exclude other
// grants only up to its start. After FORCE their fencing tokens must still be in order; after a
// clock jump they must at least be unique.
type excuse struct {
	Name string  `json:"name,omitempty"` // empty: every lock
	From instant `json:"from"`
	To   instant `json:"to"`
}

func newHistory() *history {
	return &history{holds: map[holdKey]*hold{}, names: map[string]*nameHistory{}, open: map[int]int{}, grants: map[mode]int{}, reasons: map[string]int{}}
}

// add records a hold of a client. A later text of the same hold replaces it.
func (h *history) add(client int, line json.RawMessage, at instant) error {
	one := &hold{}
	if err := json.Unmarshal(line, one); err != nil {
		return err
	}
	key := holdKey{client, one.ID}
	known := h.holds[key]
	if known == nil && one.Ended != 0 {
		h.tooLate++
		return nil
	}
	if known == nil {
		known = one
		h.holds[key] = one
		h.grants[one.Mode]++
		h.open[client]++
		for _, name := range one.Names {
			if h.names[name] == nil {
				h.names[name] = &nameHistory{}
			}
			of := h.names[name]
			of.holds, of.keys = append(of.holds, one), append(of.keys, key)
		}
	} else {
		*known = *one
		h.ended(client, known)
	}
	for _, name := range known.Names {
		if of := h.names[name]; of != nil {
			of.changed = at
		}
	}
	return nil
}

func (h *history) ended(client int, one *hold) {
	h.open[client]--
	h.reasons[one.Reason]++
}

// clientDied ends all holds of a client process that was killed at the instant, and returns their
// number.
func (h *history) clientDied(client int, at instant) (ended int) {
	for key, one := range h.holds {
		if key.client == client && one.Ended == 0 {
			one.Ended, one.Reason = at, "client killed"
			h.ended(client, one)
			ended++
		}
	}
	delete(h.open, client)
	return ended
}

// heldName returns a random lock that a client holds now, or an empty text.
func (h *history) heldName() string {
	for _, one := range h.holds {
		if one.Ended == 0 && one.Mode == exclusive && one.Until > now() {
			return one.Names[0]
		}
	}
	return ""
}

func (h *history) excuse(one excuse) { h.excused = append(h.excused, one) }

// A completeHistory has everything that is known about a lock.
type completeHistory struct {
	name    string
	holds   []*hold
	excused []excuse
}

// takeIdle forgets the locks that are no longer used at the instant, and returns them for the
// check.
func (h *history) takeIdle(at instant) (idle []completeHistory) {
	for name, of := range h.names {
		if at-of.changed < idleNames {
			continue
		}
		idle = append(idle, completeHistory{name, of.holds, h.excused})
		delete(h.names, name)
		for _, key := range of.keys {
			delete(h.holds, key)
		}
	}
	return idle
}

// checkAll checks complete histories.
func checkAll(histories []completeHistory) (found []violation) {
	for _, one := range histories {
		found = append(found, check(one.name, one.holds, one.excused)...)
	}
	return found
}

// checkLive looks for violations of exclusion and of tokens that are already visible.
func (h *history) checkLive() []violation {
	var found []violation
	for name, of := range h.names {
		if of.live < of.changed {
			of.live = of.changed
			found = append(found, checkFast(name, of.holds, h.excused)...)
		}
	}
	return found
}

func (h *history) totalGrants() (total int) {
	for _, n := range h.grants {
		total += n
	}
	return total
}
