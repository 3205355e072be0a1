package server

// Session is what the owner of a Server does with one connection's requests.
// Its methods are called from one goroutine, the one that reads the connection,
// and must not block.
type Session interface {
	// Begin starts a request. Requests are begun in the order of arrival; one
	// without a tag once the one without a tag before it is answered. Begin
	// either answers and returns nil, or returns the rest of the work, which
	// the server runs on another goroutine and which answers before it
	// returns. Exactly one answer is given: if there is none, or if one of the
	// two panics first, the server answers INTERNAL and reports the defect.
	Begin(call *Call) Work

	// InputEnded is called once: the client will send nothing more, or is not
	// listened to any more. gone tells that it reads no more either: what still
	// runs has been cancelled with ErrGone then. Otherwise that happens when it
	// closes, and until then running requests are waited for.
	InputEnded(gone bool)

	// Close is called last, once: after every Work has returned, all answers
	// are written or cannot be, and the connection is closed.
	Close()
}

// Work is the rest of a request that takes time.
type Work interface{ Run() }
