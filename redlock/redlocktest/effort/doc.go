// Package effort says how much the tests search.
//
// Usually they make few rounds. With REDLOCKD_LONG=1 they make many.
//
// Some checks are evidence about evidence: a planted mistake that a search must find, a model that must
// hold. They change rarely, and take long. REDLOCKD_TENTH=0 to 9 chooses a tenth of them. packaging/test.sh
// sets it from the commit, so that all of them run within a few days.
package effort
