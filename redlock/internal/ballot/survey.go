package ballot

import (
	"slices"
	"sync"

	"github.com/redlockd/redlockd/redlock/internal/node"
	"github.com/redlockd/redlockd/redlock/internal/quorum"
	"github.com/redlockd/redlockd/redlock/internal/redis"
)

// Survey asks all nodes about many keys in one call, and keeps their replies.
type Survey struct {
	*Ballot

	mu      sync.Mutex // guards replies; Ballot.mu is not taken inside it
	replies [][]redis.Reply
}

// NewSurvey makes a survey of the given number of nodes.
func NewSurvey(op string, nodes int, system quorum.System) *Survey {
	s := &Survey{Ballot: New(op, nodes, system, func(*redis.Reply) bool { return true }), replies: make([][]redis.Reply, nodes)}
	s.WaitsForAll = true
	return s
}

// Vote keeps a copy of one node's replies.
func (s *Survey) Vote(voter int, replies []redis.Reply, failure *node.Error) {
	if failure == nil {
		s.mu.Lock()
		s.replies[voter] = slices.Clone(replies)
		s.mu.Unlock()
	}
	s.Ballot.Vote(voter, replies, failure)
}

// Replies returns the nodes' replies about the i-th key; nil for a node that failed or replied
// with an error. Call it after Wait.
func (s *Survey) Replies(i int) []*redis.Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	about := make([]*redis.Reply, len(s.replies))
	for n, replies := range s.replies {
		if s.Answers[n].Verdict == Granted && replies[i].Err == nil {
			about[n] = &replies[i]
		}
	}
	return about
}

// ShowingBallot returns a finished ballot in which the nodes show these replies; nil stands for a
// node that failed.
func ShowingBallot(shown []*redis.Reply, system quorum.System) *Ballot {
	b := &Ballot{Quorum: system, Answers: make([]Answer, len(shown)), isClosed: true}
	for n, reply := range shown {
		if reply == nil {
			b.Answers[n].Verdict = Failed
			b.Failed |= quorum.Of(n)
			continue
		}
		b.Answers[n] = Answer{Verdict: Refused, Shown: reply}
		b.Refused |= quorum.Of(n)
	}
	return b
}
