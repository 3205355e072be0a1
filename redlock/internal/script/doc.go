// Package script has the language for requests about locks: the Lua scripts that run on the nodes
// (lua/), their operations and opcodes, the encoding of many operations as the arguments of one
// EVALSHA, and the check that an answer of a node is valid.
//
// Packages node (which sends operations), ballot and admission (which need them) use it. It sends
// nothing itself, keeps no state, and knows neither connections nor quorums.
package script
