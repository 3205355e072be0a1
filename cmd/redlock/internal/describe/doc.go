// Package describe prints holders, locks and nodes, for people and as JSON.
//
// It owns the JSON documents that who, watch, list, status and top share, whose keys never change,
// and the assignments for shells of --print. The subcommands fetch the values; the package never
// asks the daemon.
package describe
