package node

import (
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// The fuzz test of package redlock gives a lane answers without a connection. It shows how
// ballots handle any bytes, which this package cannot know. Nothing else calls the functions in
// this file.

// TakeAnswers processes the answer to one command of many calls.
func (l *Lane) TakeAnswers(calls []Call, reply *redis.Reply) error {
	l.trip.received = l.clock()
	l.noteAnswered(time.Millisecond)
	if err := checkSpan(calls, reply); err != nil {
		return err
	}
	l.answerSpan(calls, reply)
	return nil
}

// TakeLook processes the answers to a look at the node.
func (l *Lane) TakeLook(replies []redis.Reply) (*admission.Snapshot, error) {
	return l.readLook(replies)
}

// TakeMessage processes a message on the channel of this process.
func (l *Lane) TakeMessage(text string) { l.heard(text) }
