// Package metrics serves the metrics of the daemon to Prometheus. It owns the
// names, units and buckets of all metrics, and the HTTP listener.
//
// The daemon calls the methods of a [Recorder] for events. It gives [NewServer] a function that
// returns a [Snapshot], which is read at each scrape and holds everything that needs no counting in
// between.
//
// It never contacts a node, takes no mutex of another package itself, and never uses a
// lock's or a user's name as a label: no client can add a series.
package metrics
