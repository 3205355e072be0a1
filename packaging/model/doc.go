// Package model checks the lock algorithm exhaustively, with spin.
//
// It owns three models in Promela: single.pml (one Redis), redlock.pml (Redlock as published) and
// redlockd.pml (the algorithm of this project). Its test lists what each model must show:
// properties that hold for all runs within the bounds, and planted mistakes that violate one of
// them.
//
//	go test -v ./packaging/model                     small bounds, about two minutes
//	REDLOCKD_LONG=1 go test -v -timeout 12h ./packaging/model     large bounds
//
// Nothing imports it, and it runs no code of the project.
package model
