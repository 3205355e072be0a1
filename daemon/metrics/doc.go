// Package metrics serves what the daemon counts and knows to Prometheus. It owns the
// names, units and buckets of all metrics, and the HTTP listener.
//
// The daemon calls the methods of a [Recorder] when something happens, and gives
// [Start] a function that returns a [Snapshot]: everything that can be read at the
// moment of a scrape is not counted in between.
//
// It never contacts a node, never takes a mutex of another package, and never uses a
// lock's or a user's name as a label: no client can add a series.
package metrics
