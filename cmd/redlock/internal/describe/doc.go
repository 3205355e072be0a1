// Package describe prints what the daemon says about holders, locks and nodes, for people and
// as JSON.
//
// It owns the JSON documents that who, watch, list, status and top share, whose keys never
// change, and the assignments for shells of --print. The subcommands fetch the values; the
// package asks nobody.
package describe
