package script

import (
	"math"
	"slices"
	"strconv"

	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// This file checks the type and range of each answer before it is used. If an answer does not fit
// the question (a server that is no Redis, a proxy that mixes up answers), the node and the
// connection have failed.

// CheckReply checks the answer to one operation (ballot.lua lists the possible answers). several is
// whether it acquires one of several names.
func CheckReply(o *Operation, op string, several bool, reply *redis.Reply) error {
	if len(reply.Array) > 0 && reply.Err == nil {
		reply.Err = reply.NestedError()
	}
	if reply.Err != nil {
		return nil
	}
	switch o.Op {
	case HandOver:
		if len(reply.Array) == 1 {
			return checkTaken(op, &reply.Array[0])
		}
		return checkTaken(op, reply)
	case Acquire, AcquireAlso, Join:
		if several && IsFree(reply) {
			return nil
		}
		return checkTaken(op, reply)
	case Who:
		if len(reply.Array) == 0 && reply.IsList() || IsShown(reply) {
			return nil
		}
		return redis.UnexpectedAnswer(op, "a holder, or none", reply)
	case Scan:
		if isPage(reply) {
			return nil
		}
		return redis.UnexpectedAnswer(op, "a cursor and keys", reply)
	case Describe:
		if isDescription(reply) {
			return nil
		}
		return redis.UnexpectedAnswer(op, "a holder and waiters", reply)
	case ReadCounters:
		if IsFields(reply) {
			return nil
		}
		return redis.UnexpectedAnswer(op, "fields and values", reply)
	}
	return checkDone(o, op, reply)
}

// isPage reports whether a reply is a page of SCAN.
func isPage(reply *redis.Reply) bool {
	if !reply.IsList() || len(reply.Array) != 2 || !reply.Array[1].IsList() {
		return false
	}
	return IsCursor(reply.Array[0].Str) && !slices.ContainsFunc(reply.Array[1].Array, func(key redis.Reply) bool { return !key.IsText() })
}

// IsCursor reports whether a text can be a cursor of SCAN.
func IsCursor(text string) bool {
	_, err := strconv.ParseUint(text, 10, 64)
	return err == nil
}

// isDescription reports whether a reply describes a lock: its holders, and its waiters with the
// time for which each has waited.
func isDescription(reply *redis.Reply) bool {
	if !reply.IsList() || len(reply.Array) != 2 {
		return false
	}
	shown, waiters := &reply.Array[0], &reply.Array[1]
	return (len(shown.Array) == 0 && shown.IsList() || IsShown(shown)) && isPairs(waiters)
}

// isPairs reports whether a reply is a list of texts, each followed by a number.
func isPairs(reply *redis.Reply) bool {
	if !reply.IsList() || len(reply.Array)%2 == 1 {
		return false
	}
	for i := range reply.Array {
		if item := &reply.Array[i]; i%2 == 0 && !item.IsText() || i%2 == 1 && !item.IsNumber() {
			return false
		}
	}
	return true
}

// checkTaken checks for the fencing token of a grant, or the holder of the lock.
func checkTaken(op string, reply *redis.Reply) error {
	if IsShown(reply) || reply.IsNumber() && IsFencedGrant(reply) {
		return nil
	}
	return redis.UnexpectedAnswer(op, "a fencing token or a holder", reply)
}

// checkDone checks for a number that says whether the operation was done, or why not.
func checkDone(o *Operation, op string, reply *redis.Reply) error {
	least, most, want := int64(0), int64(1), "0 or 1"
	switch o.Op {
	case Extend, Downgrade, Exchange:
		least = -1
	case Confirm:
		least, most, want = -1, 2, "0, 1 or 2"
	case Enter, Reenter:
		most, want = math.MaxInt32, "a position"
	}
	if reply.IsNumber() && reply.Int >= least && reply.Int <= most {
		return nil
	}
	return redis.UnexpectedAnswer(op, want, reply)
}

// IsShown reports whether a reply shows a holder: value and pttl, then tokens with their pttl,
// and perhaps a slot.
func IsShown(reply *redis.Reply) bool {
	n := len(reply.Array)
	if !reply.IsList() || n < 2 || n%2 == 1 && n != 5 {
		return false
	}
	for i := range reply.Array {
		isText := i%2 == 0 && (n != 5 || i != 4)
		if item := &reply.Array[i]; isText && !item.IsText() || !isText && !item.IsNumber() {
			return false
		}
	}
	return true
}

// IsFields reports whether a reply has the fields and values of a hash.
func IsFields(reply *redis.Reply) bool {
	if !reply.IsList() || len(reply.Array)%2 == 1 {
		return false
	}
	for i := range reply.Array {
		if !reply.Array[i].IsText() {
			return false
		}
	}
	return true
}

// IsFree reports whether an acquire of several names was refused because of the others.
func IsFree(reply *redis.Reply) bool { return reply.IsNumber() && reply.Int == 0 }

// IsFencedGrant reports whether an acquire was granted. Then the answer is the node's fencing
// token, which is negative if a client waits for the lock.
func IsFencedGrant(reply *redis.Reply) bool { return IsFence(FenceOf(reply)) }

// FenceOf returns the fencing token of a grant.
func FenceOf(reply *redis.Reply) uint64 { return uint64(max(reply.Int, -reply.Int)) }
