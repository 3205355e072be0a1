// Package bench measures the latency and throughput of the daemon and its nodes.
//
// Bench runs its phases on one connection and counts durations in histograms. The subcommand bench
// sets its fields and prints the rows. The package takes only locks with its own prefix, and it
// releases them before a phase returns.
package bench
