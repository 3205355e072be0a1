// Package model checks the lock algorithm exhaustively, with spin.
//
// It owns four models in Promela: single.pml (one Redis), redlock.pml (Redlock as published),
// redlockd.pml (the algorithm of this project) and nodes.pml (how its list of nodes can change while
// locks are held, which is not built yet). Its test lists what each model must show:
// properties that hold for all runs within the bounds, and planted mistakes that violate one of
// them.
//
//	go test -v ./packaging/model                     small bounds, half a minute
//	REDLOCKD_LONG=1 go test -v -timeout 12h ./packaging/model     large bounds
//
// Nothing imports it, and it runs no code of the project.
package model
