package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
)

// ReplacedList returns a text if a node refused this process because a change replaced its list of nodes, until the list
// is in use again; otherwise "". The next process with the same list must know it: see NoteReplacedList.
func (q *Quorum) ReplacedList() string { return q.admission.ReplacedList() }

// NoteReplacedList records what ReplacedList returned in an earlier process. It must be called within Options.MaxTTL of
// New: from then on, nodes that lost their data could be taken for new ones. A text about another list changes nothing.
func (q *Quorum) NoteReplacedList(text string) { q.admission.NoteReplacedList(text) }

// CheckLists asks the nodes whether this process would get votes with other lists of nodes: the names in
// the old list of a change and in the new one, or the only list twice. It returns why not. If too few
// nodes answer, it retries for three seconds.
func (q *Quorum) CheckLists(ctx context.Context, before, after []string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*admission.LookInterval)
	defer cancel()
	for {
		err := q.admission.ServesLists(q.clock(), before, after, q.CopyCounters(ctx, noNode))
		if !errors.Is(err, admission.ErrUnknown) {
			return err
		}
		q.lookAtAll()
		select {
		case <-time.After(admission.LookInterval / 4):
		case <-ctx.Done():
			return err
		}
	}
}
