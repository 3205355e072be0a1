// Package top shows the daemon's nodes, locks and rates again and again.
//
// A Loop fetches a frame at each interval and draws it: on a terminal in place of the last
// one, elsewhere below it, or as one line of JSON. The subcommand top sets its fields. The
// package takes no lock.
package top
