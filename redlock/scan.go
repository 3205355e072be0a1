package redlock

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/ballot"
	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// ErrScanDenied means that a node does not let this user run SCAN.
var ErrScanDenied = errors.New("SCAN is not allowed")

// ErrCursor means that a cursor was not returned by Scan.
var ErrCursor = errors.New("not the cursor of an earlier page")

// LockPage is a part of the locks that the nodes store.
type LockPage struct {
	Locks []StoredLock
	// Next is the cursor of the next page; "": this is the last one.
	Next string
	// Walked is the number of nodes whose keys were read to the end. The scan needs Walks of them.
	Walked, Walks int
}

// StoredLock is a lock that clients of any host hold or wait for.
type StoredLock struct {
	Name     string
	Holdings []Holding // as Who returns them; nil with Many
	Many     bool      // too many clients share it to list them here: see Who
	Waiters  []Waiting // in their order
}

// Scan returns one page of the locks that the nodes store. The first page has the cursor "".
//
// A lock that a quorum has is on at least one of any N-quorum+1 nodes. So Scan reads the keys of
// that many nodes, one node after the other, and asks all nodes for the holders. A lock that is
// held from the first page to the last one is on at least one page, and mostly on several. Other
// locks may be missing. Each page takes a few round trips, and occupies a node for no longer than
// other calls do. If a node fails, Scan reads another one instead. The error matches ErrNoQuorum
// if too few nodes are left. It can also match ErrScanDenied, ErrCursor or ErrClosed.
func (q *Quorum) Scan(ctx context.Context, cursor string) (LockPage, error) {
	w, err := q.parseWalk(cursor)
	if err != nil {
		return LockPage{}, err
	}
	names, err := q.scanNames(ctx, w)
	if err != nil {
		return LockPage{}, err
	}
	page := LockPage{Walked: bits.OnesCount64(w.walked), Walks: q.walks()}
	if page.Walked < page.Walks {
		page.Next = w.String()
	}
	for some := range slices.Chunk(names, node.MaxOps/4) {
		locks, err := q.describe(ctx, some)
		if err != nil {
			return LockPage{}, err
		}
		page.Locks = append(page.Locks, locks...)
	}
	return page, nil
}

// walks returns how many nodes a scan must read: any set of that size has every lock that a
// quorum has.
func (q *Quorum) walks() int { return q.system.Blocking() }

// walk is the progress of a scan.
type walk struct {
	walked     uint64 // nodes that were read to the end, as bits
	failed     uint64 // nodes that failed
	node       int    // the node that is being read; -1: none yet
	connection uint64 // its connection: a cursor is not valid for another one
	cursor     string // the cursor that the node returned last
}

// String returns the cursor of the next page.
func (w *walk) String() string {
	return fmt.Sprintf("%x.%x.%d.%x.%s", w.walked, w.failed, w.node, w.connection, w.cursor)
}

// parseWalk is the reverse of walk.String.
func (q *Quorum) parseWalk(cursor string) (*walk, error) {
	w := &walk{node: -1, cursor: firstCursor}
	if cursor == "" {
		return w, nil
	}
	_, err := fmt.Sscanf(strings.ReplaceAll(cursor, ".", " "), "%x %x %d %x %s", &w.walked, &w.failed, &w.node, &w.connection, &w.cursor)
	if err != nil || w.node < -1 || w.node >= len(q.lanes) || (w.walked|w.failed)>>len(q.lanes) != 0 || !script.IsCursor(w.cursor) || w.String() != cursor {
		return nil, fmt.Errorf("%q is %w", cursor, ErrCursor)
	}
	return w, nil
}

// firstCursor is the cursor with which SCAN begins, and the one that it returns at the end.
const firstCursor = "0"

// scanTries is how often a node may fail to answer before another one is read instead. Answers
// can be late on a busy host, and a broken connection is soon replaced. A list is not urgent, so
// the pauses in between are long: 1, 2, 4, … node timeouts.
const scanTries = 6

// pauseScan waits after a failed try; the first try is 1. It fails if ctx is done or the Quorum
// is closed.
func (q *Quorum) pauseScan(ctx context.Context, try int) error {
	timer := time.NewTimer(q.options.NodeTimeout << (try - 1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-q.closing:
		return ErrClosed
	}
}

// scanNames reads the next page of keys from the node that is being read, and returns the names
// of locks.
func (q *Quorum) scanNames(ctx context.Context, w *walk) (names []string, err error) {
	for tries := 1; ; tries++ {
		if !q.chooseNode(w) {
			return nil, q.noQuorumError("all locks", q.newBallot("scan", ballot.IsGrant))
		}
		keys, failure := q.scanNode(ctx, w)
		switch {
		case failure == nil:
			return q.lockNames(keys), nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case node.IsDenied(failure):
			return nil, fmt.Errorf("node %s: %w: its ACL needs +scan, else only the locks of each host can be listed (ACL SETUSER redlockd +scan; NODES.md has all rights)", q.lanes[w.node].Name(), ErrScanDenied)
		case tries%scanTries == 0:
			w.failed |= 1 << w.node
			w.node = -1
		default:
			if err := q.pauseScan(ctx, tries%scanTries); err != nil {
				return nil, err
			}
		}
	}
}

// chooseNode chooses the node to read. If the node was reconnected in between, chooseNode starts
// again at its first key. It returns false if too few nodes are left.
func (q *Quorum) chooseNode(w *walk) bool {
	if w.node >= 0 {
		if now := q.lanes[w.node].Connection(); w.connection != now {
			w.connection, w.cursor = now, firstCursor
		}
		return true
	}
	for i, l := range q.lanes {
		if (w.walked|w.failed)&(1<<i) == 0 {
			w.node, w.connection, w.cursor = i, l.Connection(), firstCursor
			return len(q.lanes)-bits.OnesCount64(w.failed) >= q.walks()
		}
	}
	return false
}

// scanNode reads one page of keys.
func (q *Quorum) scanNode(ctx context.Context, w *walk) (keys []redis.Reply, failure error) {
	answer := make(oneAnswer, 1)
	op := script.Operation{Op: script.Scan, Key: script.NodeKey, Token: w.cursor, Kind: globPrefix(q.options.Prefix)}
	q.lanes[w.node].Do(node.Call{Op: "scan", Ops: []script.Operation{op}, Several: true, Voter: answer}, q.clock())
	late := time.NewTimer(q.options.NodeTimeout)
	defer late.Stop()
	select {
	case a := <-answer:
		if a.err != nil {
			return nil, a.err
		}
		if q.lanes[w.node].Connection() != w.connection {
			return nil, errors.New("it was reconnected in between") // it may have been restarted
		}
		cursor := a.reply.Array[0].Str
		w.cursor = cursor
		if cursor == firstCursor {
			w.walked |= 1 << w.node
			w.node, w.connection = -1, 0
		}
		return a.reply.Array[1].Array, nil
	case <-late.C:
		return nil, context.DeadlineExceeded
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// oneAnswer is the voter of a call to one node. It has room for the node's only answer.
type oneAnswer chan struct {
	reply redis.Reply
	err   error
}

// Vote passes the answer to the channel.
func (a oneAnswer) Vote(_ int, replies []redis.Reply, failure *node.Error) {
	var answer struct {
		reply redis.Reply
		err   error
	}
	if failure != nil {
		answer.err = failure
	} else {
		answer.reply, answer.err = replies[0], replies[0].Err
	}
	a <- answer
}

// globPrefix returns the SCAN pattern for all keys with the prefix.
func globPrefix(prefix string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(prefix) + "*"
}

// lockNames returns the names of locks that are held or waited for according to the keys.
func (q *Quorum) lockNames(keys []redis.Reply) (names []string) {
	for i := range keys {
		name, isLocks := strings.CutPrefix(keys[i].Str, q.options.Prefix)
		name, suffix, hasSuffix := strings.Cut(name, script.Separator)
		if isLocks && name != "" && (!hasSuffix || suffix == script.TurnSuffix) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// describe asks all nodes about the named locks, and returns those that are held or waited for.
func (q *Quorum) describe(ctx context.Context, names []string) (locks []StoredLock, err error) {
	for try := range scanTries {
		if try > 0 {
			if err := q.pauseScan(ctx, try); err != nil {
				return nil, err
			}
		}
		s := ballot.NewSurvey("scan", len(q.lanes), q.system)
		ops := make([]script.Operation, len(names))
		for i, name := range names {
			ops[i] = script.Operation{Op: script.Describe, Key: q.options.Prefix + name}
		}
		q.call(node.Call{Op: s.Op, Ops: ops, Several: true, Voter: s}, q.clock())
		q.await(ctx, s.Ballot)
		switch err = q.surveyError(ctx, "all locks", s.Ballot); {
		case ctx.Err() != nil:
			return nil, err
		case err != nil:
			continue
		}
		for i, name := range names {
			if lock := q.storedLock(name, s.Replies(i)); lock.Many || len(lock.Holdings)+len(lock.Waiters) > 0 {
				locks = append(locks, lock)
			}
		}
		return locks, nil
	}
	return nil, err
}

// storedLock evaluates the nodes' replies about a lock: see DESCRIBE in ballot.lua.
func (q *Quorum) storedLock(name string, replies []*redis.Reply) StoredLock {
	lock := StoredLock{Name: name}
	shown := make([]*redis.Reply, len(replies))
	for n, reply := range replies {
		if reply != nil {
			shown[n] = &reply.Array[0]
		}
	}
	lock.Waiters = mergeQueues(queuesOf(replies), q.system)
	b := ballot.ShowingBallot(shown, q.system)
	if lock.Many = b.ShowsMany(); !lock.Many {
		lock.Holdings = q.possibleHolders(b)
	}
	return lock
}
