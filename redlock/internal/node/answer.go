package node

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// checkSpan checks the answer to a command of many operations: a list with one
// element for each of them, or an error. Errors within one become the element's.
func checkSpan(calls []Call, reply *redis.Reply) error {
	if reply.Err != nil {
		return nil
	}
	ops := 0
	for i := range calls {
		ops += len(calls[i].Ops)
	}
	if !reply.IsList() || len(reply.Array) != ops {
		return redis.UnexpectedAnswer(calls[0].Op, fmt.Sprintf("a list of %d", ops), reply)
	}
	at := 0
	for i := range calls {
		for j := range calls[i].Ops {
			if err := script.CheckReply(&calls[i].Ops[j], calls[i].Op, &reply.Array[at]); err != nil {
				return err
			}
			at++
		}
	}
	return nil
}

// checkLook checks the answers to appendLook.
func checkLook(replies []redis.Reply) error {
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
	if len(replies) > 4 && !script.IsFields(&replies[4]) {
		return redis.UnexpectedAnswer(lookCommands[4], "fields and values", &replies[4])
	}
	return nil
}

func isTime(reply *redis.Reply) bool {
	if !reply.IsList() || len(reply.Array) != 2 || !script.IsFields(reply) {
		return false
	}
	seconds, err1 := strconv.ParseInt(reply.Array[0].Str, 10, 64)
	micros, err2 := strconv.ParseInt(reply.Array[1].Str, 10, 64)
	return errors.Join(err1, err2) == nil && seconds >= 0 && seconds < admission.MaxNodeSeconds && micros >= 0 && micros < 1e6
}

// checkValues checks the answer to an MGET of so many keys.
func checkValues(reply *redis.Reply, keys int) error {
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
