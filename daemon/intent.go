package daemon

// Who wants a lock for himself waits in the daemon for the readers of this host,
// and has nothing to ask the nodes before they are done. Readers of other hosts
// must not overtake him meanwhile: as soon as nobody but those who hold the lock
// already is in his way, the nodes are told that he waits. (Not sooner: the nodes
// would refuse readers of this host, too, who stand before him.)

// noteNear tells those who wait first in the lines that it has come to that. It
// needs mu.
func (q *queue) noteNear(names []string) {
	once := onceEach(names)
	for _, name := range names {
		for p := range q.lines[name].all() {
			if p.called {
				continue
			}
			if p.near != nil && !isClosed(p.near) && once.looksAt(p) && q.isNear(p) {
				close(p.near)
			}
			break
		}
	}
}

// isNear tells whether all in the way of p hold what it wants, and share it. It
// needs mu.
func (q *queue) isNear(p *place) bool {
	shared := false
	for _, name := range p.names {
		for ahead := range p.inWay(q.lines[name]) {
			if ahead.holding == nil {
				return false
			}
			shared = shared || ahead.kind.shared
		}
	}
	return shared
}

// intend has the nodes know that the request waits, and keep that in mind.
func (a *ask) intend() {
	if a.intent != nil {
		a.intent.Renew()
		return
	}
	intent, err := a.s.d.nodes.Intend(a.request())
	if err != nil { // a bad request: Acquire says so
		return
	}
	a.intent = intent
}

// forgetIntent ends it where the request never came to ask for the lock.
func (a *ask) forgetIntent() {
	if a.intent != nil {
		a.intent.End()
	}
}
