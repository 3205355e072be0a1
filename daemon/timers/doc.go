// Package timers runs functions later, with an owner that ends them and waits for them.
//
// Packages state and session use it, so that nothing runs after the daemon has stopped. It
// owns the timers and the goroutines that they start. It knows nothing about locks, and it
// never runs a function after Stop.
package timers
