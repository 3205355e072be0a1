// Package redistest has what tests need of a node without a server: answers that are known in
// advance.
//
// Tests of package redis, and of packages that use it, import it. Nothing that ships does, and
// it opens no port.
package redistest
