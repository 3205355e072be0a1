package top

import (
	"time"

	"github.com/redlockd/redlockd/cmd/redlock/internal/describe"
)

// FrameJSON is the line that top prints for a frame. Its keys never change.
type FrameJSON struct {
	Time   time.Time           `json:"time"`
	Answer int64               `json:"answer_us"`
	Rates  map[string]float64  `json:"rates"`
	Status describe.StatusJSON `json:"status"`
	Locks  []describe.LockJSON `json:"locks"`
}

// ErrorJSON is the line for a frame that could not be fetched.
type ErrorJSON struct {
	Time  time.Time `json:"time"`
	Error string    `json:"error"`
}

func (p *Frame) toJSON() FrameJSON {
	value := FrameJSON{Time: p.at, Answer: p.answered.Microseconds(), Rates: p.rates, Status: describe.StatusToJSON(p.status), Locks: describe.LocksToJSON(p.entries)}
	if value.Rates == nil {
		value.Rates = map[string]float64{}
	}
	return value
}
