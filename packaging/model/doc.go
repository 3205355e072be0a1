// Package model checks the lock algorithm exhaustively, with spin, and compares it with the code.
//
// It owns five models in Promela: single.pml (one Redis), redlock.pml (Redlock as published),
// redlockd.pml (the algorithm of this project), nodes.pml (how its list of nodes can change while locks
// are held) and back.pml (how it changes back, with nodes that have old state). TestModels lists what each
// model must show: properties that hold for all runs within the bounds, and planted mistakes that violate
// one of them.
//
// TestTraces shows that redlockd.pml allows what the code of package redlock does in simulations:
// see trace.pml.
//
//	go test -v ./packaging/model                     small bounds, a minute
//	REDLOCKD_LONG=1 go test -v -timeout 12h ./packaging/model     large bounds
//
// Nothing imports it.
package model
