// Package top shows the daemon's nodes, locks and rates at intervals.
//
// A Loop fetches a frame at each interval. On a terminal it replaces the previous frame; elsewhere
// it appends the frame, or prints it as one line of JSON. The subcommand top sets its fields. The
// package takes no lock.
package top
