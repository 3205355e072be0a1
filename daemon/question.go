package daemon

import "github.com/redlockd/redlockd/ipc/server"

// question is a request under way that asks the nodes and takes nothing. They are
// bounded for each user: while nodes are slow, one could have millions of them. (A LOCK
// is counted by itself, and an UNLOCK is one lease's.)
type question struct {
	s *session
	server.Work
}

// question begins a request unless its user has too many under way.
func (s *session) question(call *server.Call, begin func(*server.Call) server.Work) server.Work {
	if err := s.d.limits.BeginQuery(s.uid); err != nil {
		return s.refuse(call, err)
	}
	work := begin(call)
	if work == nil {
		s.d.limits.EndQuery(s.uid)
		return nil
	}
	return &question{s, work}
}

// Run also counts it out where it fails for a defect.
func (q *question) Run() {
	defer q.s.d.limits.EndQuery(q.s.uid)
	q.Work.Run()
}
