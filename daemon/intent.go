package daemon

// Who wants a lock for himself waits in the daemon for the readers of this host,
// and has nothing to ask the nodes before they are done. Readers of other hosts
// must not overtake him meanwhile: as soon as nobody but those who hold the lock
// already is in his way, the nodes are told that he waits. (Not sooner: the nodes
// would refuse readers of this host, too, who stand before him.)

// intend has the nodes know that the request waits, and keep that in mind.
func (a *ask) intend() {
	if a.intent != nil {
		a.intent.Renew()
		return
	}
	intent, err := a.s.d.nodes.Intend(a.Request())
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
