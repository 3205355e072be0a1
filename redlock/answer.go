package redlock

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// What a node answers is checked for its type and range before it is used: a node
// that answers something else than it was asked (a server that is no Redis, a proxy
// that lost its place) has failed, and so has the connection.

// checkSpan checks the answer to a command of many operations: a list with one
// element for each of them, or an error. Errors within one become the element's.
func checkSpan(calls []call, reply *Reply) error {
	if reply.Err != nil {
		return nil
	}
	ops := 0
	for i := range calls {
		ops += len(calls[i].ops)
	}
	if !reply.IsList() || len(reply.Array) != ops {
		return redis.UnexpectedAnswer(calls[0].op, fmt.Sprintf("a list of %d", ops), reply)
	}
	at := 0
	for i := range calls {
		for j := range calls[i].ops {
			if err := checkOperation(&calls[i].ops[j], calls[i].op, &reply.Array[at]); err != nil {
				return err
			}
			at++
		}
	}
	return nil
}

// checkOperation checks the answer to one operation (ballot.lua has what each can be).
func checkOperation(o *operation, op string, reply *Reply) error {
	if len(reply.Array) > 0 && reply.Err == nil {
		reply.Err = reply.NestedError()
	}
	if reply.Err != nil {
		return nil
	}
	switch o.letter {
	case opHandOver:
		if len(reply.Array) == 1 {
			return checkTaken(op, &reply.Array[0])
		}
		return checkTaken(op, reply)
	case opAcquire, opAlso, opJoin:
		return checkTaken(op, reply)
	case opWho, opList:
		if len(reply.Array) == 0 && reply.IsList() || isShown(reply) {
			return nil
		}
		return redis.UnexpectedAnswer(op, "a holder, or none", reply)
	case opCounters:
		if isFields(reply) {
			return nil
		}
		return redis.UnexpectedAnswer(op, "fields and values", reply)
	}
	return checkDone(o, op, reply)
}

// checkTaken: the fencing token of a grant, or who holds the lock.
func checkTaken(op string, reply *Reply) error {
	if isShown(reply) || reply.IsNumber() && isFencedGrant(reply) {
		return nil
	}
	return redis.UnexpectedAnswer(op, "a fencing token or a holder", reply)
}

// checkDone: whether it was done, or why not.
func checkDone(o *operation, op string, reply *Reply) error {
	least := int64(0)
	if o.letter == opExtend {
		least = -1
	}
	if reply.IsNumber() && reply.Int >= least && reply.Int <= 1 {
		return nil
	}
	return redis.UnexpectedAnswer(op, "0 or 1", reply)
}

// isShown: value and pttl, tokens and theirs, and perhaps a place.
func isShown(reply *Reply) bool {
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

// isFields: names and values, of a hash.
func isFields(reply *Reply) bool {
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

// checkLook checks the answers to appendLook.
func checkLook(replies []Reply) error {
	if !isTime(&replies[0]) {
		return redis.UnexpectedAnswer("TIME", "seconds and microseconds", &replies[0])
	}
	for i := 1; i <= 2; i++ {
		if field := &replies[i]; !field.Nil && !field.IsText() {
			return redis.UnexpectedAnswer(lookCommands[i], "a string", field)
		}
	}
	if len(replies) > 3 && !replies[3].IsText() {
		return redis.UnexpectedAnswer("INFO", "a string", &replies[3])
	}
	if len(replies) > 4 && !isFields(&replies[4]) {
		return redis.UnexpectedAnswer(lookCommands[4], "fields and values", &replies[4])
	}
	return nil
}

func isTime(reply *Reply) bool {
	if !reply.IsList() || len(reply.Array) != 2 || !isFields(reply) {
		return false
	}
	seconds, err1 := strconv.ParseInt(reply.Array[0].Str, 10, 64)
	micros, err2 := strconv.ParseInt(reply.Array[1].Str, 10, 64)
	return errors.Join(err1, err2) == nil && seconds >= 0 && seconds < admission.MaxNodeSeconds && micros >= 0 && micros < 1e6
}

// checkValues checks the answer to an MGET of so many keys.
func checkValues(reply *Reply, keys int) error {
	if reply.Err != nil {
		return nil
	}
	if !reply.IsList() || len(reply.Array) != keys {
		return redis.UnexpectedAnswer("MGET", fmt.Sprintf("a list of %d", keys), reply)
	}
	for i := range reply.Array {
		if value := &reply.Array[i]; value.Err != nil || !value.Nil && !value.IsText() {
			return redis.UnexpectedAnswer("MGET", "strings", value)
		}
	}
	return nil
}
