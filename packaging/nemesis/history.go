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

// never is the end of what did not end.
const never = instant(math.MaxInt64)

func now() instant {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // every Linux has it
	}
	return instant(t.Nano())
}

// A mode is how a lock is taken.
type mode string

const (
	exclusive mode = "exclusive"
	shared    mode = "shared"
	slots     mode = "slots" // for slotCount holders at a time
)

const slotCount = 2

// A hold is one grant as its client saw it.
type hold struct {
	ID    int64    `json:"id"` // unique in its client process
	Names []string `json:"names"`
	Mode  mode     `json:"mode"`
	Slot  string   `json:"slot,omitempty"`
	Fence uint64   `json:"fence,omitempty"` // 0: the contender has none

	Asked   instant `json:"asked"`   // before the request was sent
	Granted instant `json:"granted"` // after the answer was read
	// Until is the deadline that the client knew last. It held the lock until then,
	// or until Ended if that was earlier.
	Until instant `json:"until"`
	Ended instant `json:"ended"` // before the release was sent, or the loss was read; 0: not yet
	// Free is the earliest instant from which others may have the lock: Ended for a
	// release, Until for a loss.
	Free   instant `json:"free"`
	Reason string  `json:"reason,omitempty"` // why it ended

	mutex *redsync.Mutex // of the contender redsync, in its own process
}

// end is the instant up to which the client relied on the lock.
func (h *hold) end() instant {
	if h.Ended == 0 {
		return h.Until
	}
	return min(h.Ended, h.Until)
}

// A line is what a client process prints: a hold at its grant, and again at its end.
func (h *hold) line() []byte {
	text, err := json.Marshal(h)
	if err != nil {
		panic(err) // it has only strings and numbers
	}
	return append(text, '\n')
}

// A history is all holds of one run.
type history struct {
	holds map[holdKey]*hold
}

type holdKey struct {
	client int
	id     int64
}

func newHistory() *history { return &history{holds: map[holdKey]*hold{}} }

// add records a line of a client. A later line of the same hold replaces it.
func (h *history) add(client int, line []byte) error {
	var one hold
	if err := json.Unmarshal(line, &one); err != nil {
		return err
	}
	h.holds[holdKey{client, one.ID}] = &one
	return nil
}

// clientDied ends all holds of a client process that was killed at the instant.
func (h *history) clientDied(client int, at instant) {
	for key, one := range h.holds {
		if key.client == client && one.Ended == 0 {
			one.Ended, one.Free, one.Reason = at, at, "client killed"
		}
	}
}
